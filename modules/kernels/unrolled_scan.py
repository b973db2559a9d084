"""Scans: in a loop, or one step after another without one."""

import jax

from modules.activation_sharding import choose_form

MAX_UNROLLED = 24  # layers; compiling takes three times as long as of a loop


def reference(step, x, inputs, N: int):
    """Applies `step` N times in a loop; see `jax.lax.scan`."""
    return jax.lax.scan(step, x, inputs, N)


def unroll_steps(step, x, inputs, N: int):
    """Applies it without a loop."""
    return jax.lax.scan(step, x, inputs, N, unroll=N)


# A loop copies what each layer saves for the backward pass into a stack of all layers, which is
# filled with zeros first, and out of it again.  Compiled for an H100, a step of GPT-2's width, 4
# layers and 32 x 1024 tokens moves 65 GB in 566 kernels; in a loop 82 GB in 817.
FORMS = {"gpu": unroll_steps, "default": reference}


def scan_layers(step, x, inputs, N: int, *, unroll: int = 0, remat: str = "none"):
    """Applies a layer N times, see `jax.lax.scan`.

    Args:
        unroll: layers per iteration; 0: what suits the platform.
        remat: a key of `layer_stack.REMAT`.
    """
    # A loop over layers that are computed again stacks little, and surely holds one at a time.
    if unroll or remat != "none" or N > MAX_UNROLLED:
        return jax.lax.scan(step, x, inputs, N, unroll=unroll or 1)
    return choose_form(FORMS)(step, x, inputs, N)


def scan_numbers(step, x, inputs, N: int):
    """Applies a step of a few numbers for each row N times, see `jax.lax.scan`."""
    # Compiled for an H100, 37 steps of XLNet's span sampler are 52 kernels; in a loop, which
    # copies and counts, 238.
    return choose_form(FORMS)(step, x, inputs, N)
