"""Devices are counted before a backend starts, where that can be certain."""

import jax
import pytest

from pretrain.distributed import device_count


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    for name in (*device_count.CLUSTERS, "JAX_NUM_PROCESSES"):
        monkeypatch.delenv(name, raising=False)


def test_cpu_devices_are_as_many_as_jax_then_has():
    assert jax.default_backend() == "cpu"
    assert device_count.predict_count() == jax.device_count()


def test_devices_of_several_processes_are_added_up(monkeypatch):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "3")
    assert device_count.predict_count() == 3 * jax.device_count()


def test_devices_of_a_cluster_are_unknown(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert device_count.predict_count() == 0
