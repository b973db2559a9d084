"""Runs of one process that compute the same share what was compiled for the first of them."""

import contextlib
import functools
from collections.abc import Iterator
from unittest import mock

import jax

from pretrain.distributed import device_count
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.training import loop
from pretrain.training.compiled_steps import Steps

_build = loop.build_steps
_compiled: dict[str, Steps] = {}


def share(known: str, objective, tx, layout: Layout, train, norms=None, **options) -> Steps:
    """Returns the steps of an earlier run where it had the same; `known` tells `tx` and `norms`."""
    batches = [(data.B, data.shapes()) for data in train]
    devices = layout.mesh, [device.id for device in layout.mesh.devices.flat]
    key = str((known, options, objective, devices, batches))
    if key not in _compiled:
        for old in list(_compiled)[:-4]:  # each holds its programs
            del _compiled[old]
        _compiled[key] = Steps(objective, tx, layout, train, norms=norms, **options)
    return _compiled[key]


def build_steps(config, plan, *rest):
    """Builds what a run computes with, with shared steps."""
    known = str((config.optim.to_dict(), plan.norms))
    with mock.patch.object(loop, "Steps", functools.partial(share, known)):
        return _build(config, plan, *rest)


@contextlib.contextmanager
def train_on(devices: int = 1) -> Iterator[None]:
    """Has runs train on the first devices alone, with shared steps."""
    few = functools.partial(make_mesh, devices=jax.devices()[:devices])
    with (
        mock.patch.object(loop, "make_mesh", few),
        mock.patch.object(device_count, "predict_count", return_value=devices),
        mock.patch.object(loop, "build_steps", build_steps),
    ):
        yield
