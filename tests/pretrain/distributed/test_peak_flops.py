"""The peak belongs to the longest name that fits a device."""

import types

import jax
import pytest

from pretrain.distributed import peak_flops


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        ("TPU v5 lite", 2 * 197e12),
        ("TPU v5p", 2 * 459e12),
        ("NVIDIA H200", 2 * 989e12),
        ("NVIDIA H100 80GB HBM3", 2 * 989e12),
        ("NVIDIA H100 PCIe", 2 * 756e12),
        ("NVIDIA A100-SXM4-40GB", 2 * 312e12),
        ("NVIDIA A10G", 2 * 70e12),
        ("NVIDIA GeForce RTX 4090", 2 * 165.2e12),
        ("Tesla T4", 2 * 65e12),
        ("cpu", None),
    ],
)
def test_the_peak_is_of_all_devices_of_a_known_kind(monkeypatch, kind, peak):
    monkeypatch.setattr(jax, "devices", lambda: [types.SimpleNamespace(device_kind=kind)])
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    assert peak_flops.find_peak() == peak
