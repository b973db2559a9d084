"""Each fast form of a kernel is its reference, values and gradients, on one device and on eight."""

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

import modules.kernels
from modules.activation_sharding import sharding_context
from modules.kernels import (
    attention,
    char_max_pool,
    dense,
    dropout_bits,
    recurrent_cells,
    recurrent_scan,
    relative_shift,
    sampled_cross_entropy,
    softmax,
    softmax_cross_entropy,
)
from modules.kernels.recurrent_cells import CellConfig, CellState, CellWeights
from modules.masks import Mask
from pretrain.distributed.sharding import Layout, make_mesh
from tests.support.char_windows import draw as draw_words
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

B, L, D = 8, 3, 4
CAUSAL = Mask(is_causal=True)
RNG = np.random.default_rng(0)


class Case(NamedTuple):
    """What a kernel computes of arrays, and what its reference does.

    Attributes:
        arrays: by name, whose letters place them on a mesh; the floats are differentiated.
        files: the kernel's and those whose choice of a form it hangs on.
    """

    fast: Callable
    reference: Callable
    arrays: dict[str, np.ndarray]
    files: tuple
    tolerance: float = 1e-12


def normal(*shape):
    return RNG.normal(0, 1, shape)


def narrow(arrays):
    """Of kernels that sum up in float32."""
    return {
        name: x.astype(np.float32) if x.dtype == np.float64 else x for name, x in arrays.items()
    }


def rename(a):
    """By the names of `jax.nn.dot_product_attention`."""
    return {"query": a["q_BLHK"], "key": a["k_BJHK"], "value": a["v_BJHK"]}


def scan_case(config: CellConfig, U: int, **weights) -> Case:
    arrays = {
        "x_ZLBD": normal(2, L, B, D),
        "valid_ZLB": RNG.random((2, L, B)) < 0.8,
        "not_reset_ZLB": RNG.random((2, L, B)) < 0.7,
        "h_ZBD": normal(2, B, weights["wh_ZDGU"].shape[1]),
        **({"c_ZBU": normal(2, B, U)} if config.cell == "lstm" else {}),
        **weights,
    }

    def operands(a):
        names = ("wx_ZDGU", "wh_ZDGU", "b_ZGU", "bh_ZGU", "wp_ZUD")
        cell_weights = CellWeights(*(a.get(name) for name in names))
        state = CellState(a["h_ZBD"], a.get("c_ZBU"))
        return a["x_ZLBD"], cell_weights, state, a["not_reset_ZLB"], a["valid_ZLB"]

    return Case(
        lambda a: recurrent_scan.scan_directions(config, *operands(a)),
        lambda a: jax.vmap(functools.partial(recurrent_scan.reference, config))(*operands(a)),
        arrays,
        (recurrent_scan, recurrent_cells, dense),
    )


def cases() -> dict[str, Case]:
    table_CE, kernels, chars_BPW, _ = draw_words(shape=(B, 2))
    named = {f"kernel{n}_EX": kernel for n, kernel in enumerate(kernels)}
    pooled = lambda pool: lambda a: pool(a["table_E"], [a[k] for k in named], a["chars_BPW"])  # noqa: E731
    V = 6
    words = {"targets_BP": RNG.integers(0, V, (B, L)), "weights_BP": RNG.random((B, L))}
    full = {"w_VD": normal(V, D), "bias_V": normal(V), "h_BPD": normal(B, L, D), **words}
    few = {"w_SD": normal(5, D), "shift_S": normal(5), "ids_S": np.array([1, 4, 0, 2, 9])}
    few |= {"h_BPD": normal(B, L, D), "own_BP": normal(B, L), **words}
    seen = {"a_BHLJ": 9 * normal(B, 2, L, 5), "visible_BHLJ": RNG.random((B, 1, L, 5)) < 0.6}
    starts_BP = RNG.integers(0, L, (B, 2))
    U = 6
    return {
        "relative_shift": Case(
            lambda a: relative_shift.cut_rows(a["x_BHPR"], starts_BP, 5),
            lambda a: relative_shift.reference(a["x_BHPR"], starts_BP, 5),
            {"x_BHPR": normal(B, 2, 2, 5 + L)},
            (relative_shift,),
        ),
        "dropout_bits": Case(
            lambda a: dropout_bits.apply_dropout(0.4, a["x_BLD"], np.array([7, 9], np.uint32)),
            lambda a: dropout_bits.reference(0.4, a["x_BLD"], np.array([7, 9], np.uint32)),
            {"x_BLD": normal(B, L, D)},
            (dropout_bits,),
        ),
        "attention": Case(
            lambda a: attention.attend(**a, mask=attention.make_attention_mask(CAUSAL, L)),
            lambda a: jax.nn.dot_product_attention(**rename(a), is_causal=True),
            narrow({f"{name}HK": normal(B, L, 2, D) for name in ("q_BL", "k_BJ", "v_BJ")}),
            (attention,),
            1e-5,
        ),
        "dense": Case(
            lambda a: dense.dense(a["x_BLD"], a["w_DF"]),
            lambda a: dense.reference(a["x_BLD"], a["w_DF"]),
            {"x_BLD": normal(B, L, D), "w_DF": normal(D, 8)},
            (dense,),
        ),
        "softmax": Case(
            lambda a: softmax.softmax(a["a_BHLJ"], a["visible_BHLJ"]),
            lambda a: softmax.reference(a["a_BHLJ"], a["visible_BHLJ"]),
            narrow(seen),
            (softmax,),
            1e-6,
        ),
        "lstm": scan_case(
            CellConfig("lstm", clip_cell=0.5, clip_projection=0.4),
            U,
            wx_ZDGU=normal(2, D, 4, U),
            wh_ZDGU=normal(2, D, 4, U),
            b_ZGU=normal(2, 4, U),
            wp_ZUD=normal(2, U, D),
        ),
        "gru": scan_case(
            CellConfig("gru"),
            U,
            wx_ZDGU=normal(2, D, 3, U),
            wh_ZDGU=normal(2, U, 3, U),
            b_ZGU=normal(2, 3, U),
            bh_ZGU=normal(2, 3, U),
        ),
        "rnn": scan_case(
            CellConfig("rnn", activation="relu"),
            U,
            wx_ZDGU=normal(2, D, 1, U),
            wh_ZDGU=0.5 * normal(2, U, 1, U),
            b_ZGU=normal(2, 1, U),
        ),
        "char_max_pool": Case(
            pooled(char_max_pool.char_max_pool),
            pooled(char_max_pool.reference),
            {"table_E": table_CE, **named, "chars_BPW": chars_BPW},
            (char_max_pool,),
        ),
        "softmax_cross_entropy": Case(
            lambda a: softmax_cross_entropy.softmax_cross_entropy(**a, chunks=2),
            lambda a: softmax_cross_entropy.reference(**a),
            narrow(full),
            (softmax_cross_entropy,),
            1e-5,
        ),
        "sampled_cross_entropy": Case(
            lambda a: sampled_cross_entropy.sampled_cross_entropy(**a, chunks=2),
            lambda a: sampled_cross_entropy.reference(**a),
            narrow(few),
            (sampled_cross_entropy,),
            1e-5,
        ),
    }


CASES = cases()
UNTRAINED = ("weights_BP",)  # constants to the losses


def value_and_grads(f: Callable, arrays):
    """Weighs the outputs into one number, and differentiates it by every float of the arrays."""

    def loss(floats, rest):
        outputs = jax.tree.leaves(f(floats | rest))
        draws = np.random.default_rng(1)
        return sum((x * draws.normal(0, 1, x.shape)).sum() for x in outputs)

    is_float = lambda name, x: x.dtype.kind == "f" and name not in UNTRAINED  # noqa: E731
    floats = {name: x for name, x in arrays.items() if is_float(name, x)}
    rest = {name: x for name, x in arrays.items() if name not in floats}
    return quick_jit(jax.value_and_grad(loss))(floats, rest)


def forms_of(case: Case) -> list[str]:
    """The platforms that some choice of the kernel names."""
    return sorted(
        {form for file in case.files for form in getattr(file, "FORMS", {"default": None})}
    )


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize(("name", "form"), [(n, f) for n in CASES for f in forms_of(CASES[n])])
def test_values_and_gradients_are_the_reference_s(name, form, devices, monkeypatch):
    case = CASES[name]
    switches = [file.FORMS for file in case.files if hasattr(file, "FORMS")]
    with jax.enable_x64(case.tolerance < 1e-9), jax.default_matmul_precision("highest"):
        expected = value_and_grads(case.reference, case.arrays)
        for forms in switches:
            monkeypatch.setitem(forms, "cpu", forms.get(form, forms["default"]))
        layout = Layout(make_mesh(devices=jax.devices()[:1]))
        if devices > 1:
            layout = Layout(make_mesh(data=2, fsdp=2, tensor=2))
        arrays = jax.tree.map(jax.device_put, case.arrays, layout.of(case.arrays))
        with sharding_context(layout):
            found = value_and_grads(case.fast, arrays)
    offs = jax.tree.map(off, found, jax.tree.map(np.asarray, expected))
    assert max(jax.tree.leaves(offs)) < case.tolerance, offs


def test_every_kernel_has_a_case():
    files = {file.stem for file in Path(modules.kernels.__file__).parent.glob("*.py")}
    tested = {file.__name__.rpartition(".")[2] for case in CASES.values() for file in case.files}
    assert tested == files - {"__init__"}


@pytest.mark.parametrize("name", sorted({f.__name__ for c in CASES.values() for f in c.files}))
def test_forms_name_a_default(name):
    assert "default" in getattr(importlib.import_module(name), "FORMS", {"default": None})
