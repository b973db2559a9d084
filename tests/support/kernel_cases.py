"""What every fast form of a kernel has to do: to be its reference, on one device and on eight."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import pytest

from modules.activation_sharding import sharding_context
from pretrain.distributed.sharding import Layout, make_mesh
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

B, L, D, U, V = 8, 3, 4, 6, 6
UNTRAINED = ("weights_BP",)  # constants to the losses


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


def narrow(arrays):
    """Of kernels that sum up in float32."""
    return {
        name: x.astype(np.float32) if x.dtype == np.float64 else x for name, x in arrays.items()
    }


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


EXPECTED: dict[int, tuple] = {}


def reference_of(case: Case):
    """Computes values and gradients of a case's reference, once."""
    if id(case) not in EXPECTED:
        EXPECTED[id(case)] = case, value_and_grads(case.reference, case.arrays)
    return EXPECTED[id(case)][1]


def forms_of(case: Case) -> list[str]:
    """The platforms that some choice of the kernel names."""
    return sorted(
        {form for file in case.files for form in getattr(file, "FORMS", {"default": None})}
    )


def every_form(case: Case):
    """Parametrizes a test over the forms of a kernel, on one device and on eight."""

    def decorate(test):
        test = pytest.mark.parametrize("form", forms_of(case))(test)
        return pytest.mark.parametrize("devices", [1, 8])(test)

    return decorate


def assert_is_reference(case: Case, form: str, devices: int, monkeypatch) -> None:
    """Compares values and gradients of this form with the reference's."""
    switches = [file.FORMS for file in case.files if hasattr(file, "FORMS")]
    with jax.enable_x64(case.tolerance < 1e-9), jax.default_matmul_precision("highest"):
        expected = reference_of(case)
        for forms in switches:
            monkeypatch.setitem(forms, "cpu", forms.get(form, forms["default"]))
        layout = Layout(make_mesh(devices=jax.devices()[:1]))
        if devices > 1:
            layout = Layout(make_mesh(data=2, fsdp=2, tensor=2))
        arrays = jax.tree.map(jax.device_put, case.arrays, layout.make_shardings(case.arrays))
        with sharding_context(layout):
            found = value_and_grads(case.fast, arrays)
    offs = jax.tree.map(off, found, jax.tree.map(np.asarray, expected))
    assert max(jax.tree.leaves(offs)) < case.tolerance, offs


def scores(rng: np.random.Generator, few: bool) -> dict[str, np.ndarray]:
    """Draws the arrays of a softmax's loss: over the vocabulary, or a few of it."""
    draw = lambda *shape: rng.normal(size=shape)  # noqa: E731
    arrays = {"targets_BP": rng.integers(0, V, (B, L)), "weights_BP": rng.random((B, L))}
    arrays["h_BPD"] = draw(B, L, D)
    if not few:
        return narrow(arrays | {"w_VD": draw(V, D), "bias_V": draw(V)})
    rows = {"w_SD": draw(5, D), "shift_S": draw(5), "ids_S": np.array([1, 4, 0, 2, 9])}
    return narrow(arrays | rows | {"target_logit_BP": draw(B, L)})
