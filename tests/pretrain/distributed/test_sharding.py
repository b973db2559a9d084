"""A state begins the same on any mesh, is split where it can be, and moves between any two."""

import functools
import itertools
import math
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from pretrain.checkpoint.manager import Checkpoints
from pretrain.data.batches.loader import list_phases
from pretrain.distributed.sharding import AXES, Layout, arrange_devices, make_mesh, plan_layout
from pretrain.runtime.errors import UserError
from pretrain.training import optimizer
from pretrain.training.compiled_steps import Steps
from tests.support import tiny_runs as toys

pytest_plugins = ["tests.support.tiny_runs"]

MESHES = {  # data, fsdp, tensor
    "one": (1, 1, 1),
    "data 8": (8, 1, 1),
    "fsdp 4": (1, 4, 1),
    "tensor 2": (1, 1, 2),
    "mixed 8": (2, 2, 2),
}
ALL = list(itertools.permutations(MESHES, 2))
BOTH = [("one", "mixed 8"), ("mixed 8", "one")]
LARGE = 256  # numbers; smaller parameters may stay whole


def chip(number, slices=2, platform="tpu"):
    """The number-th of eight devices, in slices of 2 x 2 chips or in hosts."""
    place, of_slice = divmod(number, 8 // slices)
    coords = [of_slice % 2, of_slice // 2, 0]
    kind = {"tpu": "TPU v5 lite", "gpu": "NVIDIA H100"}[platform]
    about = dict(platform=platform, device_kind=kind, process_index=place)
    return SimpleNamespace(id=number, slice_index=place, coords=coords, core_on_chip=0, **about)


def test_only_rows_are_divided_over_slices():
    grid = arrange_devices((4, 2, 1), [chip(n) for n in range(8)])
    assert np.vectorize(lambda x: x.slice_index)(grid).tolist() == 2 * [[[0]] * 2] + 2 * [[[1]] * 2]
    with pytest.raises(UserError, match=r"mesh\.data=1 does not divide over 2 slices of TPUs"):
        arrange_devices((1, 8, 1), [chip(n) for n in range(8)])
    hosts = arrange_devices((1, 8, 1), [chip(n, platform="gpu") for n in range(8)])
    assert [x.id for x in hosts.flat] == list(range(8))


QUICK = {(recipe, "mixed 8") for recipe in toys.RECIPES}


def over(*meshes, quick=QUICK):
    """Parametrizes over every recipe on each mesh, of which `make test` has the `quick` ones."""
    cases = [
        pytest.param(*case, marks=() if case in quick else pytest.mark.slow)
        for case in itertools.product(toys.RECIPES, meshes)
    ]
    return pytest.mark.parametrize(("recipe", "mesh"), cases)


@pytest.fixture(scope="module")
def build(toy):
    """(recipe, mesh, changes of the recipe) -> (compiled functions, first batch), by name once."""

    @functools.cache
    def build(recipe: str, mesh: str, **changes):
        shape = MESHES[mesh]
        devices = jax.devices()[: math.prod(shape)]
        layout = Layout(make_mesh(**dict(zip(AXES, shape, strict=True)), devices=devices))
        config = toy.config(recipe, {f"batches.{key}": value for key, value in changes.items()})
        objective, train, _ = toys.build(config)
        (data, *_), (tx, _) = list_phases(train), optimizer.make(**config.optim)
        steps = Steps(objective, tx, layout, [data], seed=config.seed)
        return steps, layout.shard_batch(data.batch(0), data.B)

    return build


@over(*MESHES, quick={("clm", "mixed 8")})
def test_a_state_begins_the_same_on_any_mesh(build, recipe, mesh):
    toys.assert_same(build(recipe, mesh)[0].init(), build(recipe, "one")[0].init())


def numbered(like):
    """A tree of arrays of these shapes, whose numbers are all different."""
    counter = itertools.count()

    def fill(x):
        return (np.arange(x.size).reshape(x.shape) + 1000 * next(counter)).astype(x.dtype)

    return jax.tree.map(fill, like)


@pytest.mark.parametrize("recipe", toys.quickly("clm"))
@pytest.mark.parametrize("pairs", [BOTH, pytest.param(ALL, marks=pytest.mark.slow)])
def test_a_checkpoint_moves_between_any_two_meshes_exactly(build, recipe, tmp_path, pairs):
    for number, pair in enumerate(pairs):
        one, other = (build(recipe, mesh)[0].like for mesh in pair)
        state = numbered(one)
        saved = Checkpoints(tmp_path / str(number), asynchronous=False)
        saved.save(3, jax.tree.map(lambda x, s: jax.device_put(x, s.sharding), state, one), {})
        found = saved.restore(other)
        saved.close()
        assert found is not None
        restored, _, step = found
        assert step == 3
        toys.assert_same(restored, state)
        jax.tree.map(toys.assert_sharded_like, restored, other)


WHOLE = {  # few as they are, none of their dimensions is one that such a mesh splits
    "all": ("character_E",),
    "fsdp 4": ("b_ZGU",),
    "tensor 2": ("position_LD", "_DD", "characters"),
}


@over("fsdp 4", "tensor 2", "mixed 8")
def test_every_large_parameter_and_its_moments_are_split(build, recipe, mesh):
    like = build(recipe, mesh)[0].like
    named = jax.tree_util.tree_leaves_with_path((like.params, like.opt))
    large = {jax.tree_util.keystr(path): x for path, x in named if x.size >= LARGE}
    assert len(large) >= 12
    for name, x in large.items():
        if any(whole in name for whole in WHOLE["all"] + WHOLE.get(mesh, ())):
            continue
        assert math.prod(x.sharding.shard_shape(x.shape)) < x.size, name


def count_constraints(steps, batch) -> int:
    """How often the training step, as handed to the compiler, states where an array lives."""
    return jax.jit(steps.train).lower(steps.like, batch).as_text().count("sharding_constraint")


@over(*(mesh for mesh in MESHES if mesh != "one"), quick={("clm", "mixed 8")})
def test_activations_are_held_to_their_places(build, recipe, mesh):
    placed_by_arguments_alone = count_constraints(*build(recipe, "one"))
    assert count_constraints(*build(recipe, mesh)) >= placed_by_arguments_alone + 4


@pytest.mark.parametrize("mesh", ["data 8", "mixed 8"])
def test_rows_that_do_not_divide_are_refused_before_anything_is_compiled(build, mesh):
    with pytest.raises(UserError, match=r"18 rows does not divide over \d devices"):
        build("clm", mesh, B=18)


@pytest.mark.parametrize(("shape", "named"), [((3, 1, 1), "data=3"), ((-1, 3, 1), "fsdp=3")])
def test_a_mesh_that_does_not_use_every_device_once_is_refused(shape, named):
    with pytest.raises(UserError, match=f"{named}.*8 devices"):
        make_mesh(*shape)


def test_rows_are_refused_by_the_axes_that_are_known_where_devices_are_not():
    plan_layout(0, fsdp=4, tensor=2).check_rows(12)
    with pytest.raises(UserError, match="6 rows does not divide over 4 devices"):
        plan_layout(0, fsdp=4, tensor=2).check_rows(6)
    with pytest.raises(UserError, match="12 rows does not divide over 8 devices"):
        plan_layout(16, fsdp=4, tensor=2).check_rows(12)
