"""pretrain/compile.py and what it stands on: a step compiled for chips that are not here.

What needs the compiler for TPUs (pip install libtpu) is skipped where it is not; the same code is
then tried on the eight CPU devices of the tests.
"""

import dataclasses
import importlib
import importlib.util
import math
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from benchmarks.contest import synthetic_data
from pretrain import compile
from pretrain.aot import collectives, compiled_step, hlo, mesh_search, roofline, tpu_specs
from pretrain.data.batches import dummy
from pretrain.runtime.errors import UserError
from tests.support import tiny_runs as toys

LIBTPU = pytest.mark.skipif(
    not importlib.util.find_spec("libtpu"), reason="libtpu is not installed: pip install libtpu"
)
GIB = 2**30


def slice_of(kind: str, *shape: int, devices=()) -> tpu_specs.Slice:
    """A slice that nobody has looked for."""
    return tpu_specs.Slice(
        f"{kind}:{'x'.join(map(str, shape))}", tpu_specs.CHIPS[kind], shape, devices
    )


def places(*shape: int) -> list:
    """Devices that know where they are and nothing else."""
    return [SimpleNamespace(coords=at) for at in np.ndindex(*shape)]


# --- a step of the tests' own devices --------------------------------------------------------


def made(recipe: str, **mesh: int) -> compiled_step.Step:
    config = toys.get_config(recipe)
    config.mesh.update(mesh)
    steps = compiled_step.steps(config, slice_of("v5e", 2, 4, devices=jax.devices()))
    return compiled_step.compiled(steps, compiled_step.rows(config)[-1])


@pytest.fixture(scope="module", params=toys.quickly("clm"))
def step(request) -> compiled_step.Step:
    """The toy step of a recipe, split over everything."""
    return made(request.param, data=2, fsdp=2, tensor=2)


def work(step: compiled_step.Step) -> roofline.Work:
    """As if the devices were chips of a v5e."""
    return roofline.work(step.program, slice_of("v5e", 2, 4), places(2, 4))


def test_memory_is_told_by_what_it_is_for(step):
    like = step.steps.like
    shares = {
        name: sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in leaves)
        for name, leaves in {
            "parameters": jax.tree.leaves(like.params),
            "optimiser": jax.tree.leaves(like.opt),
            "carry": jax.tree.leaves(like.carry),
        }.items()
    }
    assert shares["parameters"] > 0
    # The learning rate's step may be one number with Adam's.
    assert {name: step.memory[name] for name in shares} == pytest.approx(shares, abs=8)
    assert step.memory["activations"] > 0


def test_no_collective_carries_logits(step):
    V = step.steps.objective.backbone.V // 2
    shapes = [x.shape for each in collectives.collectives(step.program, 8) for x in each.arrays]
    assert len(shapes) > 10
    weights = 2 * V * step.steps.objective.backbone.D
    large = [shape for shape in shapes if math.prod(shape) > weights]
    assert not [shape for shape in large if {V, 2 * V} & set(shape)]


def test_no_large_optimiser_state_is_whole_on_every_chip(step):
    leaves = jax.tree_util.tree_leaves_with_path(step.steps.like.opt)
    characters = [x for path, x in leaves if "character_E" in jax.tree_util.keystr(path)]
    small = sum(x.size * x.dtype.itemsize for x in characters)  # of a real model, too
    assert step.whole["optimiser"] - small < 0.1 * step.memory["optimiser"]


def test_the_products_that_run_are_those_of_the_recipe(step):
    # A causal model's scores are counted by half, and all worked out.
    assert 1.0 <= work(step).flops / step.flops < 2.0


def test_everything_is_told_in_lines(step):
    lines = "\n".join(compile.told(step, work(step), slice_of("v5e", 2, 4)))
    for words in ("parameters", "activations", "fits", "all-reduce", "intensity", "tokens/s"):
        assert words in lines


# --- shapes without text ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "preset"),
    [("bert", "large"), ("bert", "roberta"), ("elmo", "mini"), ("gpt2", "124m"), ("xlnet", "base")],
)
def test_batches_of_nothing_have_the_shapes_of_batches_of_text(recipe, preset):
    config = importlib.import_module(f"configs.{recipe}").get_config(preset)
    config.batches.B = 4
    found = dummy.rows(**config.batches).batch(0)
    wanted = synthetic_data.layout(config.to_dict()).batch(0, slice(0, 1))
    assert {k: (x.shape, x.dtype) for k, x in found.items()} == {
        k: (x.shape, x.dtype) for k, x in wanted.items()
    }


# --- chips -----------------------------------------------------------------------------------

LANES = {  # slice, the chips that talk -> links over which each hears from the others
    "a ring": ("v5p", (4, 4, 4), [(0, 0, n) for n in range(4)], 2),
    "a line of v5e": ("v5e", (4, 4), [(n, 0) for n in range(4)], 1),
    "a ring of v5e": ("v5e", (16, 16), [(n, 0) for n in range(16)], 2),
    "half a ring": ("v5p", (4, 4, 4), [(0, 0, n) for n in range(2)], 1),
    "a plane": ("v5p", (4, 4, 8), [(0, a, b) for a in range(4) for b in range(8)], 4),
    "all": ("v4", (4, 4, 4), list(np.ndindex(4, 4, 4)), 6),
    "two neighbours": ("v6e", (2, 4), [(0, 0), (1, 0)], 1),
}


@pytest.mark.parametrize("case", LANES)
def test_chips_hear_from_each_other_along_every_dimension_that_they_span(case):
    kind, shape, at, lanes = LANES[case]
    assert slice_of(kind, *shape).lanes([SimpleNamespace(coords=x) for x in at]) == lanes


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v9:4x4", "want one of v4, v5e, v5p, v6e"),
        ("v5e", "want one of"),
        ("v5p:4x4", "slices of v5p have 3 dimensions, as v5p:4x4x4"),
        ("v5e:4x4x4", "slices of v5e have 2 dimensions"),
    ],
)
def test_a_topology_that_there_is_not_is_refused(name, message):
    with pytest.raises(UserError, match=message):
        tpu_specs.described(name)


def test_without_the_compiler_the_one_thing_to_do_is_said(monkeypatch):
    monkeypatch.setattr(tpu_specs.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install libtpu$"):
        tpu_specs.described("v5e:4x4")


# --- a lower bound of time -------------------------------------------------------------------

PRODUCT = """
ENTRY %main (a: bf16[4096,{K}], b: bf16[{K},4096]) -> bf16[4096,4096] {{
  %a = bf16[4096,{K}]{{1,0:T(8,128)(2,1)}} parameter(0)
  %b = bf16[{K},4096]{{1,0:T(8,128)(2,1)}} parameter(1)
  %c = bf16[4096,4096]{{1,0:T(8,128)(2,1)}} dot(%a, %b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT %d = bf16[4096,4096]{{1,0:T(8,128)(2,1)}} all-reduce(%c), replica_groups={{{{0,1,2,3}}}}
}}
"""  # noqa: E501


@pytest.mark.parametrize(("K", "bound"), [(8192, "products"), (128, "memory")])
def test_an_operation_takes_the_longer_of_its_products_and_its_traffic(K, bound):
    program = hlo.Program(PRODUCT.format(K=K))
    found = roofline.work(program, slice_of("v5e", 4, 4), places(4, 4))
    products, memory = 2 * 4096**2 * K / 197e12, 2 * (2 * 4096 * K + 4096**2) / 819e9
    assert (found.products, found.memory) == pytest.approx((products, memory))
    assert found.operations == pytest.approx({"products": products, "memory": memory}[bound])
    # Along a line of four each chip hears 2 * 3/4 of the sum, over one link.
    assert found.links == pytest.approx(2 * 3 / 4 * 2 * 4096**2 / 50e9)
    assert found.seconds == max(found.operations, found.links)


# --- the search ------------------------------------------------------------------------------


def small_config(**batches):
    config = toys.get_config("clm")
    config.batches.update(batches)
    return config


def test_every_mesh_that_is_tried_uses_all_chips_and_splits_whole_heads():
    found = list(mesh_search.meshes(16, heads=12))
    assert len(found) == len(set(found)) == 12
    assert {math.prod(mesh) for mesh in found} == {16}
    assert {tensor for *_, tensor in found} == {1, 2, 4}


def test_batches_that_do_not_divide_over_the_chips_are_not_tried():
    assert {each.B for each in mesh_search.choices(small_config(B=24), 16)} == {48, 96}


@pytest.fixture
def compiled_as(monkeypatch):
    """Makes the search believe that a choice comes to what a function says; lists what it asked."""

    def believe(outcome):
        asked = []

        def one(config, place, choice):
            asked.append(choice)
            return outcome(choice)

        monkeypatch.setattr(mesh_search, "one", one)
        return asked

    return believe


def test_the_table_begins_with_the_most_tokens_per_second_and_chip(compiled_as):
    drawn = iter(np.random.default_rng(0).permutation(1000) + 1)
    compiled_as(lambda x: mesh_search.Found(x, 1.0, GIB, rate=next(drawn), share=0.5))
    found = mesh_search.tried(
        small_config(B=16), slice_of("v5e", 2, 4, devices=places(2, 4)), 1, print
    )
    rates = [int(row.split()[-2].replace(",", "")) for row in mesh_search.table(found)[1:]]
    assert rates == sorted((x.rate for x in found), reverse=True)
    assert len(set(rates)) > 5


def test_what_is_larger_than_what_did_not_fit_is_not_compiled(compiled_as):
    asked = compiled_as(
        lambda x: (
            mesh_search._large(x, "it takes 17G")
            if x.B >= 16
            else mesh_search.Found(x, 1.0, rate=1.0)
        )
    )
    found = mesh_search.tried(
        small_config(B=16), slice_of("v5e", 2, 4, devices=places(2, 4)), 1, print
    )
    assert {x.B for x in asked} == {8, 16}
    assert {x.choice.B for x in found if x.why} == {16, 32, 64}
    assert all(row.count("does not fit") for row in mesh_search.table(found)[-3:])


@pytest.mark.parametrize(
    ("memory", "B", "why"),
    [(1e4, 8, "the state alone takes"), (1e9, 6, "6 rows does not divide over 4")],
)
def test_what_cannot_fit_is_told_without_compiling(monkeypatch, memory, B, why):
    monkeypatch.setattr(compiled_step, "compiled", None)
    place = slice_of("v5e", 2, 4, devices=jax.devices())
    place = dataclasses.replace(place, chip=dataclasses.replace(place.chip, memory=memory))
    found = mesh_search.one(small_config(), place, mesh_search.Choice((2, 2, 2), "full", B))
    assert why in found.why


def test_the_search_ends_when_its_time_is_over_and_says_so(compiled_as):
    said = []
    asked = compiled_as(lambda x: mesh_search.Found(x, 1.0))
    mesh_search.tried(small_config(), slice_of("v5e", 2, 4, devices=places(2, 4)), 0.0, said.append)
    assert not asked
    assert "were not tried" in said[-1]


# --- the command, with the compiler ----------------------------------------------------------


def command(recipe: str, topology: str, *flags: str) -> subprocess.CompletedProcess:
    """The command on a toy recipe, compiled as for a user, not as hastily as in the tests."""
    own = {"XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_PLATFORMS"}
    words = [f"--config=tests/support/tiny_runs.py:{recipe}", f"--topology={topology}", *flags]
    return subprocess.run(
        [sys.executable, "-m", "pretrain.compile", *words],
        cwd=toys.ROOT,
        text=True,
        capture_output=True,
        env={k: v for k, v in os.environ.items() if k not in own},
    )


@LIBTPU
def test_a_step_that_fits_is_told_of():
    ran = command("clm", "v5e:2x2", "--config.mesh.fsdp=4", "--config.model.dtype=bfloat16")
    assert ran.returncode == 0, ran.stderr
    assert "8 rows of 32 tokens on v5e:2x2: 4 chips, data=1 fsdp=4 tensor=1" in ran.stdout
    assert re.search(r"total +0\.\d+ +0%: fits", ran.stdout)
    assert re.search(r"together .* tokens/s of a chip", ran.stdout)
    assert "all-gather" in ran.stdout


@LIBTPU
def test_a_step_that_does_not_fit_ends_with_1_and_the_compilers_line():
    ran = command("clm", "v5e:1x1", "--config.batches.B=2097152")
    assert ran.returncode == 1
    assert "exceeds available HBM (15.75G)" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert re.search(r"activations +\d\d", ran.stdout)


@LIBTPU
@pytest.mark.slow
@pytest.mark.parametrize("recipe", toys.RECIPES)
@pytest.mark.parametrize("topology", ["v4:2x2x2", "v5e:2x4", "v5p:2x2x2", "v6e:2x4"])
def test_every_recipe_compiles_for_every_chip(recipe, topology):
    mesh = ("--config.mesh.data=2", "--config.mesh.fsdp=2", "--config.mesh.tensor=2")
    ran = command(recipe, topology, *mesh)
    assert ran.returncode == 0, ran.stderr
    assert f"on {topology}: 8 chips" in ran.stdout


@LIBTPU
@pytest.mark.slow
def test_the_search_compiles_meshes_and_prints_them_sorted():
    ran = command("bilm", "v5e:1x2", "--search", "--minutes=1")
    assert ran.returncode == 0, ran.stderr
    rates = [int(row.split()[-2].replace(",", "")) for row in ran.stdout.splitlines()[1:]]
    assert rates == sorted(rates, reverse=True)
    assert rates
