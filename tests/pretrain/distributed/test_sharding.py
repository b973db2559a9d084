"""One loss on any mesh, and a checkpoint that moves between any two of them."""

import functools
import itertools
import math

import jax
import numpy as np
import pytest

from pretrain.checkpoint.manager import Checkpoints
from pretrain.data.batches.loader import list_phases
from pretrain.distributed.sharding import AXES, Layout, make_mesh
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


def over(*meshes):
    """Returns every recipe on each mesh; in `make test`, two on the mesh that splits everything.

    The other two are there with their gradients in test_layouts.
    """
    quick = {("plm", "mixed 8"), ("mlm", "mixed 8")}
    cases = [
        pytest.param(recipe, mesh, marks=() if (recipe, mesh) in quick else pytest.mark.slow)
        for recipe in toys.RECIPES
        for mesh in meshes
    ]
    return pytest.mark.parametrize(("recipe", "mesh"), cases)


EVERY = pytest.mark.parametrize("recipe", toys.RECIPES)


class Run:
    """A recipe on a mesh."""

    def __init__(self, config, shape):
        devices = jax.devices()[: math.prod(shape)]
        layout = Layout(make_mesh(**dict(zip(AXES, shape, strict=True)), devices=devices))
        objective, train, _ = toys.build(config)
        self.data = list_phases(train)[0]
        tx, _ = optimizer.make(**config.optim)
        self.steps = Steps(objective, tx, layout, [self.data], seed=config.seed)

    @functools.cached_property
    def trained(self):
        """(the state after the first steps, the loss of each)."""
        state, losses = self.steps.init(), []
        for step in range(3):
            state, metrics = self.steps.train(state, self.batch(step))
            loss = metrics.sums["loss"]
            losses.append(float(loss.total / loss.weight))
        return state, losses

    def batch(self, step):
        return self.steps.layout.put(self.data.batch(step), self.data.B)


@pytest.fixture(scope="module")
def runs(toy):
    """(recipe, mesh) -> Run, each made once."""
    made = {}

    def run(recipe, mesh) -> Run:
        if (recipe, mesh) not in made:
            made[recipe, mesh] = Run(toy.config(recipe), MESHES[mesh])
        return made[recipe, mesh]

    return run


@over(*MESHES)
def test_the_loss_of_the_first_steps_is_the_same_on_any_mesh(runs, recipe, mesh):
    _, losses = runs(recipe, mesh).trained
    assert len(set(losses)) == 3
    np.testing.assert_allclose(losses, runs(recipe, "one").trained[1], rtol=1e-5)


@over(*MESHES)
def test_a_state_begins_the_same_on_any_mesh(runs, recipe, mesh):
    toys.assert_same(runs(recipe, mesh).steps.init(), runs(recipe, "one").steps.init())


@EVERY
@pytest.mark.parametrize("pairs", [BOTH, pytest.param(ALL, marks=pytest.mark.slow)])
def test_a_checkpoint_moves_between_any_two_meshes_exactly(runs, recipe, tmp_path, pairs):
    state = jax.device_get(runs(recipe, "mixed 8").trained[0])
    for number, pair in enumerate(pairs):
        one, other = (runs(recipe, mesh).steps.like for mesh in pair)
        saved = Checkpoints(tmp_path / str(number), asynchronous=False)
        saved.save(3, jax.tree.map(lambda x, s: jax.device_put(x, s.sharding), state, one), {})
        found = saved.restore(other)
        saved.close()
        assert found is not None
        restored, _, step = found
        assert step == 3
        toys.assert_same(restored, state)
        jax.tree.map(lambda x, s: _same_place(x, s), restored, other)


def _same_place(x, like):
    assert x.sharding.is_equivalent_to(like.sharding, x.ndim)
    share = like.sharding.shard_shape(x.shape)
    assert {shard.data.shape for shard in x.addressable_shards} == {share}


WHOLE = {  # few as they are, none of their dimensions is one that such a mesh splits
    "all": ("character_E",),
    "fsdp 4": ("b_ZGU",),
    "tensor 2": ("position_LD", "_DD", "characters"),
}


SPLIT = ["fsdp 4", "tensor 2", "mixed 8"]


@EVERY
@pytest.mark.parametrize("mesh", SPLIT)
def test_every_large_parameter_and_its_moments_have_places_that_split_them(runs, recipe, mesh):
    like = runs(recipe, mesh).steps.like
    named = jax.tree_util.tree_leaves_with_path((like.params, like.opt))
    large = {jax.tree_util.keystr(path): x for path, x in named if x.size >= LARGE}
    assert len(large) >= 12
    for name, x in large.items():
        if any(whole in name for whole in WHOLE["all"] + WHOLE.get(mesh, ())):
            continue
        assert math.prod(x.sharding.shard_shape(x.shape)) < x.size, name


@over(*SPLIT)
def test_a_trained_state_is_really_in_its_places(runs, recipe, mesh):
    run = runs(recipe, mesh)
    jax.tree.map(_same_place, run.trained[0], run.steps.like)


def constraints(run) -> int:
    """How often the training step, as handed to the compiler, states where an array lives."""
    text = jax.jit(run.steps.train).lower(run.steps.like, run.batch(0)).as_text()
    return text.count("sharding_constraint")


@over(*(mesh for mesh in MESHES if mesh != "one"))
def test_activations_are_held_to_their_places(runs, recipe, mesh):
    placed_by_arguments_alone = constraints(runs(recipe, "one"))
    assert constraints(runs(recipe, mesh)) >= placed_by_arguments_alone + 4


@EVERY
@pytest.mark.parametrize("shape", [(8, 1, 1), (2, 4, 1)])
def test_rows_that_do_not_divide_are_refused_before_anything_is_compiled(toy, recipe, shape):
    config = toy.config(recipe, {"batches.B": 12})
    with pytest.raises(UserError, match=r"12 rows does not divide over 8 devices"):
        Run(config, shape)


@pytest.mark.parametrize(("shape", "named"), [((3, 1, 1), "data=3"), ((-1, 3, 1), "fsdp=3")])
def test_a_mesh_that_does_not_use_every_device_once_is_refused(shape, named):
    with pytest.raises(UserError, match=f"{named}.*8 devices"):
        make_mesh(*shape)
