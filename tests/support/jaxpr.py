"""What a program traced by JAX consists of, however deep it lies."""

import jax


def programs_in(jaxpr):
    """This program and all inside it."""
    yield jaxpr
    for eqn in jaxpr.eqns:
        for inner in programs_of(eqn):
            yield from programs_in(inner)


def programs_of(eqn):
    """The programs that an equation runs."""
    values = jax.tree.leaves(tuple(eqn.params.values()), is_leaf=_is_program)
    return [getattr(x, "jaxpr", x) for x in values if _is_program(x)]


def arrays_in(jaxpr):
    """All that is computed in it, each as its variable."""
    return [var for sub in programs_in(jaxpr) for eqn in sub.eqns for var in eqn.outvars]


def scans_in(jaxpr):
    """All scans in a program, wherever they stand."""
    equations = (eqn for program in programs_in(jaxpr) for eqn in program.eqns)
    return [eqn for eqn in equations if eqn.primitive.name == "scan"]


def _is_program(x):
    return hasattr(x, "eqns") or hasattr(x, "jaxpr")
