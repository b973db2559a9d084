"""The three models, weight by weight, are the paper's equations."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.backbones import text_mask, text_rnn
from modules.layers.params import recording
from modules.masks import Mask
from tests.support.compiler import quick_jit

FILE = pathlib.Path(__file__).parents[2] / "fixtures" / "text_rnn" / "golden.npz"
B, L, D, U = 3, 6, 5, 4
GATES = "ifoc"
MODELS = {"uniform": "I", "coupled": "II", "shared": "III"}
TASKS = ("m", "n")


def arrange(arrays, sharing):
    """A golden's arrays, weights or their gradients, as our parameters."""

    def lstm(name, inputs="", states=()):
        part = lambda letter, x: arrays[f"{name}/{letter}{x}"]  # noqa: E731
        return {
            "wx_DGU": np.stack([part("W", x) for x in [*GATES, *inputs.split()]], 1),
            "wh_DGU": np.stack([part("U", x) for x in [*"ifo", *(states or "c")]], 1),
            "peep_GU": np.stack([part("V", x) for x in "ifo"]),
        }

    if sharing == "uniform":
        return {"rnn": lstm("s")}
    if sharing == "coupled":  # from m to n is what the file calls mn, with the weights of n
        arrays = arrays | {"m/Umn": arrays["n/Umn"], "n/Unm": arrays["m/Unm"]}
        own = {"m": ("c", "mn", "g"), "n": ("nm", "c", "g")}
        return {f"rnns_{x}": lstm(x, "g", own[x]) for x in TASKS}
    own = {"rnns_m": lstm("m", "g gs", ("c", "g")), "shared_0": lstm("f"), "shared_1": lstm("b")}
    return own | {"joint_m_DGU": np.stack([arrays["m/Us"], arrays["m/Ugs"]], 1)}


@pytest.fixture(scope="module")
def golden():
    with np.load(FILE) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("sharing", MODELS)
def test_states_and_all_gradients_are_those_of_the_equations(golden, sharing):
    begin = f"{MODELS[sharing]}/"
    weights, grads = (
        {k.removeprefix(begin + kind): x for k, x in golden.items() if k.startswith(begin + kind)}
        for kind in ("w/", "g/")
    )
    tasks = TASKS if sharing == "coupled" else ("m",)
    backbone = text_rnn.Backbone(B * L, D, U=U, sharing=sharing, tasks=tasks, dtype="float64")
    tokens_BL = np.arange(B * L).reshape(B, L)

    def read(given, task):
        params = given | {"token_VD": golden["x"].reshape(B * L, D)}
        fields = dict(mask=text_mask(backbone), train=False, network=task)
        return backbone.apply({"params": params}, tokens_BL, **fields).h[:, -1]

    def total(given):
        last = jnp.concatenate([read(given, task) for task in tasks], -1)
        return last.sum(), last

    with jax.enable_x64(True):
        given = arrange(weights, sharing)
        ours, last = quick_jit(jax.grad(total, has_aux=True))(given)
    np.testing.assert_allclose(last, golden[f"{begin}y"], atol=1e-12)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-12), ours, arrange(grads, sharing)
    )


FIELDS = {"uniform": dict(own_D=3), "coupled": {}, "shared": {}}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """(a network of two tasks, parameters, what these are)."""
    backbone = text_rnn.Backbone(
        9, D, U=U, tasks=TASKS, sharing=request.param, **FIELDS[request.param]
    )
    tokens_BL = np.zeros((1, 2), int)
    with recording() as record:
        params = backbone.init(jax.random.key(0), tokens_BL, mask=text_mask(backbone), train=False)
    return backbone, params["params"], record.infos(params["params"])


def test_a_task_s_own_parameters_are_those_the_others_do_not_move(model):
    backbone, params, infos = model
    tokens_BL = np.random.default_rng(0).integers(0, 9, (2, 5))

    def total(params, task):
        fields = dict(mask=text_mask(backbone), train=False, network=task)
        return (backbone.apply({"params": params}, tokens_BL, **fields).h ** 2).sum()

    grads = quick_jit(lambda p: [jax.grad(total)(p, task) for task in TASKS])(params)
    owners = [info.task for info in jax.tree.leaves(infos)]
    for task, grad in zip(TASKS, grads, strict=True):
        moved = [bool(np.abs(g).max() > 0) for g in jax.tree.leaves(grad)]
        assert moved == [owner in ("", task) for owner in owners]
    assert set(owners) == ({""} if backbone.sharing == "coupled" else {"", *TASKS})


def test_a_task_that_it_has_not_is_refused(model):
    backbone, params, _ = model
    fields = dict(mask=text_mask(backbone), train=False, network="o")
    with pytest.raises(ValueError, match="network='o': this TextRNN has m, n"):
        backbone.apply({"params": params}, np.zeros((1, 2), int), **fields)


def test_a_memory_and_no_tasks_at_all_are_refused():
    model = text_rnn.Backbone(V=8, D=4, U=4, sharing="uniform", tasks=("a",))
    tokens_BL = np.ones((1, 3), np.int32)
    read = dict(mask=Mask(is_causal=True), memory=np.zeros((1, 4)), train=False)
    with pytest.raises(ValueError, match="leave memory out"):
        jax.eval_shape(lambda: model.init(jax.random.key(0), tokens_BL, **read))
    with pytest.raises(ValueError, match=r"tasks=\(\): name one, or leave the field out"):
        text_rnn.Backbone(V=8, D=4, U=4, sharing="uniform", tasks=())
