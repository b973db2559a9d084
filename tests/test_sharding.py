"""One loss on any mesh, and a checkpoint that moves between any two of them."""

import itertools
import math

import jax
import numpy as np
import pytest

from pretrain import optim
from pretrain.checkpoint import Checkpoints
from pretrain.data.stream import phases
from pretrain.errors import UserError
from pretrain.sharding import AXES, Layout, make_mesh
from pretrain.steps import Steps
from tests import toy as toys

pytest_plugins = ["tests.toy"]

MESHES = {  # data, fsdp, tensor
    "one": (1, 1, 1),
    "data 8": (8, 1, 1),
    "fsdp 4": (1, 4, 1),
    "tensor 2": (1, 1, 2),
    "mixed 8": (2, 2, 2),
}
ALL = list(itertools.permutations(MESHES, 2))
ROUND = list(zip(MESHES, [*list(MESHES)[1:], "one"], strict=True))  # each as source and as target
LARGE = 256  # numbers; smaller parameters may stay whole


class Run:
    """The first steps of a recipe on a mesh: `state` after them and `losses`."""

    def __init__(self, config, shape):
        devices = jax.devices()[: math.prod(shape)]
        layout = Layout(make_mesh(**dict(zip(AXES, shape, strict=True)), devices=devices))
        objective, train, _ = toys.build(config)
        self.data = phases(train)[0]
        tx, _ = optim.make(**config.optim)
        self.steps = Steps(objective, tx, layout, [self.data], seed=config.seed)
        self.state, self.losses = self.steps.init(), []
        for step in range(3):
            self.state, sums = self.steps.train(self.state, self.batch(step))
            self.losses.append(float(sums["loss"][0] / sums["loss"][1]))

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


pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.parametrize("recipe", toys.RECIPES),
]


@pytest.mark.parametrize("mesh", MESHES)
def test_the_loss_of_the_first_steps_is_the_same_on_any_mesh(runs, recipe, mesh):
    losses = runs(recipe, mesh).losses
    assert len(set(losses)) == 3
    np.testing.assert_allclose(losses, runs(recipe, "one").losses, rtol=1e-5)


@pytest.mark.parametrize("mesh", MESHES)
def test_a_state_begins_the_same_on_any_mesh(runs, recipe, mesh):
    toys.assert_same(runs(recipe, mesh).steps.init(), runs(recipe, "one").steps.init())


@pytest.mark.parametrize("pairs", [ROUND, pytest.param(ALL, marks=pytest.mark.slow)])
def test_a_checkpoint_moves_between_any_two_meshes_exactly(runs, recipe, tmp_path, pairs):
    state = jax.device_get(runs(recipe, "mixed 8").state)
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


WHOLE = {  # few as they are, none of their dimensions is one that such a mesh splits
    "all": ("character_E",),
    "fsdp 4": ("b_ZGU",),
    "tensor 2": ("position_LD", "_DD", "characters"),
}


@pytest.mark.parametrize("mesh", ["fsdp 4", "tensor 2", "mixed 8"])
def test_every_large_parameter_and_its_moments_are_really_split(runs, recipe, mesh):
    state = runs(recipe, mesh).state
    named = jax.tree_util.tree_leaves_with_path((state.params, state.opt))
    large = {jax.tree_util.keystr(path): x for path, x in named if x.size >= LARGE}
    assert len(large) >= 12
    for name, x in large.items():
        if any(whole in name for whole in WHOLE["all"] + WHOLE.get(mesh, ())):
            continue
        shares = {shard.data.size for shard in x.addressable_shards}
        assert max(shares) < x.size, name


def constraints(run) -> int:
    """How often the training step, as handed to the compiler, states where an array lives."""
    text = jax.jit(run.steps.train).lower(run.steps.like, run.batch(0)).as_text()
    return text.count("sharding_constraint")


@pytest.mark.parametrize("mesh", [mesh for mesh in MESHES if mesh != "one"])
def test_activations_are_held_to_their_places(runs, recipe, mesh):
    placed_by_arguments_alone = constraints(runs(recipe, "one"))
    assert constraints(runs(recipe, mesh)) >= placed_by_arguments_alone + 4


@pytest.mark.parametrize("shape", [(8, 1, 1), (2, 4, 1)])
def test_rows_that_do_not_divide_are_refused_before_anything_is_compiled(toy, recipe, shape):
    config = toy.config(recipe, {"batches.B": 12})
    with pytest.raises(UserError, match=r"12 rows does not divide over 8 devices"):
        Run(config, shape)


@pytest.mark.parametrize(("shape", "named"), [((3, 1, 1), "data=3"), ((-1, 3, 1), "fsdp=3")])
def test_a_mesh_that_does_not_use_every_device_once_is_refused(recipe, shape, named):
    with pytest.raises(UserError, match=f"{named}.*8 devices"):
        make_mesh(*shape)
