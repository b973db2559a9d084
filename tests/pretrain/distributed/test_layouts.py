"""One training on every layout, and a layout that sends and keeps nothing it could do without."""

import functools
import importlib
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from modules.layers import layer_stack
from pretrain.aot import chips, collectives, step_memory, tpu_specs
from pretrain.aot.hlo_cost import list_saved_activations
from pretrain.data.batches.loader import list_phases
from pretrain.distributed.sharding import AXES, Layout, make_mesh
from pretrain.training import optimizer
from pretrain.training.compiled_steps import Steps, make_blank
from tests.support import tiny_runs as toys
from tests.support.jaxpr import programs_in
from tests.support.presets import presets
from tests.support.slices import compile_step, make_slice

pytest_plugins = ["tests.support.tiny_runs"]

MESHES = {  # data, fsdp, tensor
    "data 8": (8, 1, 1),
    "fsdp 8": (1, 8, 1),
    "fsdp 4": (2, 4, 1),
    "tensor 2": (4, 1, 2),
    "mixed": (2, 2, 2),
}
DEEP = ("plm", "mlm", "clm")  # backbones of layers that can be worked out again
DEEPLY = pytest.mark.parametrize(
    "recipe",
    [name if name == "clm" else pytest.param(name, marks=pytest.mark.slow) for name in DEEP],
)
ROWS = 16  # they divide over eight devices in two parts


# --- the same training -----------------------------------------------------------------------


class Run:
    """Three steps of a recipe: the loss and the gradient's norm of each, and what it carries."""

    def __init__(self, config, shape, parts: int):
        devices = jax.devices()[: math.prod(shape)]
        layout = Layout(make_mesh(**dict(zip(AXES, shape, strict=True)), devices=devices))
        objective, train, _ = toys.build(config)
        data, (tx, _) = list_phases(train)[0], optimizer.make(**config.optim)
        steps = Steps(objective, tx, layout, [data], seed=config.seed, parts=parts)
        state, numbers = steps.init(), []
        for step in range(3):
            state, metrics = steps.train(state, layout.shard_batch(data.batch(step), data.B))
            loss = metrics.sums["loss"]
            numbers.append([float(loss.total / loss.weight), float(metrics.grad_norm)])
        jax.tree.map(toys.assert_sharded_like, state, steps.like)
        self.numbers, self.carry = np.array(numbers), jax.device_get(state.carry)


@pytest.fixture(scope="module")
def run(toy):
    """(recipe, mesh, parts, remat) -> Run, each made once."""

    @functools.cache
    def made(recipe, shape, parts, remat):
        changes = {"batches.B": ROWS} | ({"execution.remat": remat} if remat != "none" else {})
        return Run(toy.config(recipe, changes), shape, parts)

    return made


def cases():
    """Every layout in one part and in two, remats in turn; of `make test`, one of everything."""
    yield "clm", "mixed", 2, "dots"
    for recipe in toys.RECIPES:
        remats = layer_stack.REMAT if recipe in DEEP else ("none",)
        for n, (mesh, parts) in enumerate(itertools.product(MESHES, (1, 2))):
            case = recipe, mesh, parts, tuple(remats)[n % len(remats)]
            yield pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(("recipe", "mesh", "parts", "remat"), cases())
def test_losses_gradients_and_carry_are_those_of_one_device(run, recipe, mesh, parts, remat):
    found, expected = run(recipe, MESHES[mesh], parts, remat), run(recipe, (1, 1, 1), parts, "none")
    assert len(np.unique(expected.numbers)) == expected.numbers.size
    np.testing.assert_allclose(found.numbers, expected.numbers, rtol=2e-5)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=2e-6)
    jax.tree.map(close, found.carry, expected.carry)


# --- what travels and what is kept -----------------------------------------------------------


@pytest.fixture(scope="module", params=toys.quickly("clm"))
def split(request) -> step_memory.Step:
    """The step of a recipe whose parameters are split over all eight devices."""
    return compile_step(request.param, data=1, fsdp=8)


def talk(step: step_memory.Step) -> list[collectives.Collective]:
    return collectives.find_collectives(step.program, 8)


def softmax(step: step_memory.Step) -> set[tuple[int, ...]]:
    """Shapes of the softmax's weights, either way round."""
    backbone = step.steps.objective.backbone
    return {(backbone.V, backbone.D), (backbone.D, backbone.V)}


def test_softmax_weights_are_fetched_once_for_loss_and_once_for_input(split):
    fetched = [
        each.count
        for each in talk(split)
        if each.kind == "all-gather"
        for x in each.arrays
        if x.shape in softmax(split)
    ]
    fewest = 0 if getattr(split.steps.objective, "samples", 0) else 1  # or the sampled rows alone
    assert fewest <= sum(fetched) <= 2


def test_no_collective_carries_scores_of_the_vocabulary(split):
    V, D = split.steps.objective.backbone.V, split.steps.objective.backbone.D
    shapes = [x.shape for each in talk(split) for x in each.arrays]
    assert len(shapes) > 10
    carried = [shape for shape in shapes if V in shape]
    assert carried
    assert not [shape for shape in carried if math.prod(shape) > V * D]


def test_nothing_is_asked_of_other_devices_until_the_data_have_an_end(split):
    """A loop whose end depends on the data would have them agree on it at each of its turns."""
    program = split.program
    loops = [
        (name, i)
        for name, _ in program.executions()
        for i in program.computations[name].values()
        if i.op == "while" and program.trip_count(i) is None
    ]
    talking = {
        name
        for name, own in program.computations.items()
        if any(i.op.removesuffix("-start") in collectives.KINDS for i in own.values())
    }
    assert not [i.op_name for _, i in loops if talking & set(i.callees("condition", "body"))]


@pytest.mark.parametrize("shape", [(8, 1, 1), (1, 8, 1), (2, 2, 2), (4, 1, 2)])
@pytest.mark.parametrize(("letters", "sizes"), [("VD", (6, 16)), ("DV", (16, 5)), ("D", (9,))])
def test_the_shares_of_the_devices_are_added_up_where_their_sum_lives(shape, letters, sizes):
    layout = Layout(make_mesh(*shape))
    rng = np.random.default_rng(0)
    shares = rng.normal(0, 1, (layout.num_shards("B"), *sizes)).astype(np.float32)
    found = jax.jit(functools.partial(layout.reduce_to_shards, letters=letters))(shares)
    np.testing.assert_allclose(found, shares.sum(0), rtol=1e-5, atol=1e-6)
    place = NamedSharding(layout.mesh, layout.make_spec(letters, sizes))
    assert found.sharding.is_equivalent_to(place, len(sizes))


def test_a_function_of_shards_sees_those_of_its_device():
    layout, x_BH = Layout(make_mesh(2, 2, 2)), np.arange(32).reshape(8, 4)
    take_first = functools.partial(layout.map_shards, lambda x_BH: [x_BH[:1, :1]])
    np.testing.assert_array_equal(take_first([x_BH], ["BH"], ["BH"])[0], x_BH[::2, ::2])


@pytest.mark.parametrize("recipe", ["clm", "mlm"])
def test_devices_that_share_heads_keep_a_part_of_the_positions_each(recipe):
    config = toys.get_config(recipe)
    step = compile_step(recipe, {"execution.remat": "full", "model.N": 4}, data=4, tensor=2)
    saved = [x.shape for x in list_saved_activations(step.program)]
    layers = 4 if recipe == "clm" else 3  # the last of BERT's has other positions
    rows, L, D = step.data.B // 4, step.data.L, config.model.D
    assert (layers, rows, L // 2, D) in saved
    assert (layers, rows, L, D) not in saved


# --- what is kept for the way back -----------------------------------------------------------


def objective_of(recipe: str, remat: str = "none", **fields):
    """(loss of a batch, by its parameters, without dropout; their shapes)."""
    config = toys.get_config(recipe)
    config.model.update(dropout=0.0, attention_dropout=0.0, N=5, **fields)
    config.execution.remat = remat
    place = make_slice("v5e", 1, 1, devices=jax.devices()[:1])
    steps = step_memory.build_steps(config, place)
    batch, rng = make_blank(step_memory.build_batch_shapes(config)[-1]), jax.random.key(0)

    def loss(params):
        rngs = dict(dropout=rng, corrupt=rng)
        variables = {"params": params, **jax.tree.map(jnp.zeros_like, steps.like.carry)}
        sums, _ = steps.objective.apply(
            variables, batch(), train=True, rngs=rngs, mutable=list(steps.like.carry)
        )
        return sums["loss"].total

    return loss, steps


def residuals(recipe: str, **fields) -> list:
    """The shapes of what the backward pass of a loss is given."""
    loss, steps = objective_of(recipe, **fields)
    pull = jax.eval_shape(lambda params: jax.vjp(loss, params)[1], steps.like.params)
    return jax.tree.leaves(pull)


def bytes_of(arrays) -> int:
    return sum(x.size * x.dtype.itemsize for x in arrays)


def products(recipe: str, **fields) -> int:
    """How many the program has; those of a loop over layers count once."""
    loss, steps = objective_of(recipe, **fields)
    program = jax.make_jaxpr(jax.grad(loss))(steps.like.params)
    eqns = (eqn for sub in programs_in(program.jaxpr) for eqn in sub.eqns)
    return sum(eqn.primitive.name == "dot_general" for eqn in eqns)


@DEEPLY
def test_what_is_kept_shrinks_from_none_to_dots_to_full(recipe):
    none, dots, full = (bytes_of(residuals(recipe, remat=remat)) for remat in layer_stack.REMAT)
    assert none > 1.2 * dots
    assert dots > 1.2 * full


BELOW = {"plm": 4, "mlm": 4, "clm": 5}  # of 5 layers, those whose every position is computed


@DEEPLY
def test_dots_keeps_the_products_of_weights_and_makes_the_scores_anew(recipe):
    if recipe == "plm":
        pytest.skip("its scores are of two streams, in several sums")
    model, data = toys.get_config(recipe).model, toys.get_config(recipe).batches
    kept = {remat: [x.shape for x in residuals(recipe, remat=remat)] for remat in layer_stack.REMAT}
    every = BELOW[recipe], data.B
    scores, inner = (*every, model.H, data.L, data.L), (*every, data.L, model.F)
    assert [shapes.count(scores) > 0 for shapes in kept.values()] == [True, False, False]
    assert [shapes.count(inner) for shapes in kept.values()][1:] == [1, 0]
    none, dots, full = (products(recipe, remat=remat) for remat in layer_stack.REMAT)
    assert dots == none + 2  # scores, and the values by them
    assert full >= dots + 5  # queries, keys, values; the attention's output; the first of two


@DEEPLY
def test_in_bfloat16_little_of_a_layer_is_kept_in_float32(recipe):
    kept = residuals(recipe, dtype="bfloat16")
    every = BELOW[recipe], toys.get_config(recipe).batches.B
    activations = [x for x in kept if x.shape[:2] == every]
    assert len(activations) >= 8
    assert not [x.shape for x in activations if x.dtype == jnp.float32]


# --- the published sizes ---------------------------------------------------------------------

PUBLISHED = [
    (recipe, preset)
    for recipe in ("bert", "elmo", "gpt", "gpt2", "gpt3", "xlnet")
    for preset in presets(f"configs.{recipe}")
]
RECOMMENDED = {  # by the README and the recipes; of the others, where a row for each chip is
    ("bert", "large"): (4, 16, 1),
    ("gpt2", "1558m"): (4, 16, 1),
    ("xlnet", "large"): (16, 16, 1),
    ("elmo", "original"): (1, 16, 1),
    ("gpt3", "13b"): (2, 4, 8),
    ("gpt3", "175b"): (1, 128, 4),
}
GENERAL = [(8, 1, 1), (2, 4, 1), (1, 4, 2)]
LARGE = 2**20  # numbers


@pytest.fixture
def described(monkeypatch):
    """(recipe, preset, shape) -> the steps on devices that there are not."""

    def steps(recipe, preset, shape) -> Steps:
        mesh = AbstractMesh(shape, AXES, axis_types=(AxisType.Auto,) * len(AXES))
        monkeypatch.setattr(step_memory, "make_mesh", lambda **_: mesh)
        config = importlib.import_module(f"configs.{recipe}").get_config(preset)
        place = chips.Slice("none", tpu_specs.CHIPS["v5e"], (1, 1), ())
        return step_memory.build_steps(config, place)

    return steps


def shares(tree) -> list[tuple[str, int, int]]:
    """(name, numbers, those of a device) of every array."""
    named = jax.tree_util.tree_leaves_with_path(tree)
    return [
        (jax.tree_util.keystr(path), x.size, math.prod(x.sharding.shard_shape(x.shape)))
        for path, x in named
    ]


@pytest.mark.parametrize(
    ("recipe", "preset", "shape"), [(*case, shape) for case, shape in RECOMMENDED.items()]
)
def test_on_the_mesh_that_is_recommended_nothing_large_is_whole(described, recipe, preset, shape):
    like = described(recipe, preset, shape).like
    found = shares((like.params, like.opt))
    large = [each for each in found if each[1] >= LARGE]
    assert len(large) >= 10
    assert not [name for name, size, own in large if own == size]
    assert sum(own for *_, own in found) < 1.03 * sum(size for _, size, _ in found) / shape[1]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "preset"), PUBLISHED)
@pytest.mark.parametrize("shape", GENERAL)
def test_every_preset_is_laid_out_on_any_mesh(described, recipe, preset, shape):
    """Of the smallest, biases and the characters' table are no longer next to nothing."""
    found = shares(described(recipe, preset, shape).like.params)
    total, share = (sum(each[k] for each in found) for k in (1, 2))
    assert share < (1.03 if total >= LARGE * 8 else 1.2) * total / shape[1]
