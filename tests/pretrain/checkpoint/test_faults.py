"""Checkpoints of processes that are killed, run out of disk, or are several."""

import contextlib
import os
import random
import shutil
import socket
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pretrain.checkpoint.manager import Checkpoints
from pretrain.runtime.errors import UserError
from tests.support import commands
from tests.support.array_files import small_disk
from tests.support.checkpoints import assert_same


def test_a_save_that_fails_in_the_background_stops_the_next(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    wide = {"w": jax.random.normal(jax.random.key(0), (1 << 18,))}
    checkpoints.save(1, wide, {})
    checkpoints.wait()
    with small_disk(100_000):
        checkpoints.save(2, wide, {})
        while checkpoints.manager.is_saving_in_progress():
            time.sleep(0.01)
        with pytest.raises(UserError, match=r"could not be written in .*: .*File too large"):
            checkpoints.save(3, wide, {})
    assert Checkpoints(tmp_path).restore(wide)[2] == 1


def test_a_failed_save_is_reported_at_once_in_one_line(tmp_path, caplog):
    checkpoints = Checkpoints(tmp_path)
    with small_disk(100_000):
        checkpoints.save(1, {"w": jax.random.normal(jax.random.key(0), (1 << 18,))}, {})
        while checkpoints.manager.is_saving_in_progress():
            time.sleep(0.01)
    for ask in (checkpoints.check, checkpoints.check, checkpoints.close):
        with pytest.raises(UserError, match=r"could not be written in .*: .*File too large"):
            ask()
    assert not [record for record in caplog.records if record.exc_info]


KILLED = """
import sys, jax.numpy as jnp
from pretrain.checkpoint.manager import Checkpoints
checkpoints = Checkpoints(sys.argv[1])
for n in range(1, 10_000):
    checkpoints.save(n, {"w": jnp.full(200_000, n), "x": jnp.full((3, 5), n / 7)}, {"at": n})
    print(n, flush=True)
"""


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 5))]
)
def test_a_run_killed_while_saving_leaves_the_checkpoint_before(tmp_path, seed):
    draw = random.Random(seed)
    run = commands.Process([sys.executable, "-c", KILLED, tmp_path])
    enough = draw.randint(3, 9)
    while not (last := max(map(int, run.said[0].read_text().split()), default=0)) >= enough:
        assert run.poll() is None
        time.sleep(0.001)
    time.sleep(draw.uniform(0, 0.03))
    run.kill()
    run.communicate()
    found, position, step = Checkpoints(tmp_path).restore(
        {"w": jnp.zeros(200_000, int), "x": jnp.ones((3, 5))}
    )
    assert step >= last - 1  # the save of `last` began when that of `last - 1` had ended
    assert position == {"at": step}
    assert_same(found, {"w": jnp.full(200_000, step), "x": jnp.full((3, 5), step / 7)})
    assert not (tmp_path / "checkpoints-refused").exists()


def test_an_unfinished_save_is_ignored_and_cleared_away(tmp_path):
    x = {"x": jnp.ones(3)}
    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        checkpoints.save(1, x, {})
    folder = tmp_path / "checkpoints"
    shutil.copytree(folder / "1", folder / "2.orbax-checkpoint-tmp")
    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        assert checkpoints.restore(x)[2] == 1
        checkpoints.save(3, x, {})
    assert sorted(os.listdir(folder)) == ["1", "3"]


TWO_PROCESSES = """
import os, pathlib, sys
import jax, numpy as np
process, port, workdir = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=process)
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec as P
from pretrain.checkpoint.manager import Checkpoints

mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
def put(x, spec):
    sharding = NamedSharding(mesh, spec)
    return jax.make_array_from_callback(x.shape, sharding, lambda at: x[at])
def state(n):
    w = np.random.default_rng(n).standard_normal((8, 512), np.float32)
    rest = {"v": put(w.T.copy(), P(None, "data")), "n": put(np.int32(n), P())}
    return {"w": put(w, P("data")), **rest}

checkpoints = Checkpoints(workdir, keep=3)
for n in (1, 2, 3):
    checkpoints.save(n, state(n), {"at": n})
checkpoints.wait()
if process == 0:  # what process 1 alone wrote, and alone reads of `w`
    for path in (workdir / "checkpoints" / "3").rglob("ocdbt.process_1/d/*"):
        os.truncate(path, path.stat().st_size // 2)
multihost_utils.sync_global_devices("damaged")
found, position, step = checkpoints.restore(state(0))
for name, leaf in state(2).items():
    for a, b in zip(found[name].addressable_shards, leaf.addressable_shards, strict=True):
        np.testing.assert_array_equal(a.data, b.data)
checkpoints.save(3, state(3), {"at": 3})
checkpoints.close()
print("RESTORED", step, position, sorted(os.listdir(workdir / "checkpoints-refused")), flush=True)
jax.distributed.shutdown()
"""


def test_two_processes_save_fall_back_together_and_one_restores(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    words = [sys.executable, "-c", TWO_PROCESSES]
    runs = [
        commands.Process([*words, process, port, tmp_path], os.environ | flags)
        for process in range(2)
    ]
    try:
        for run in runs:
            out, err = run.communicate(timeout=120)
            assert "RESTORED 2 {'at': 2} ['3']" in out, err[-3000:]
    finally:
        for run in runs:
            run.kill()
    w = np.random.default_rng(3).standard_normal((8, 512), np.float32)
    expected = {"w": w, "v": w.T.copy(), "n": np.int32(3)}
    found, position, step = Checkpoints(tmp_path).restore(jax.tree.map(jnp.asarray, expected))
    assert_same(found, expected)
    assert (position, step) == ({"at": 3}, 3)
