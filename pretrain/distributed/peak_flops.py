"""Peak FLOP/s of known accelerators."""

import jax

# bfloat16 products per second of one device with sums in float32 and without sparsity, as its
# maker states them; of those before Ampere float16.
PEAKS = {
    "TPU v2": 22.5e12,
    "TPU v3": 61.5e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
    "NVIDIA A10": 125e12,
    "NVIDIA A100": 312e12,
    "NVIDIA A10G": 70e12,
    "NVIDIA A30": 165e12,
    "NVIDIA A40": 149.7e12,
    "NVIDIA B200": 2250e12,
    "NVIDIA GB200": 2500e12,
    "NVIDIA GeForce RTX 3090": 71e12,
    "NVIDIA GeForce RTX 4090": 165.2e12,
    "NVIDIA GeForce RTX 5090": 209.5e12,
    "NVIDIA GH200": 989e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H20": 148e12,
    "NVIDIA H200": 989e12,
    "NVIDIA L4": 121e12,
    "NVIDIA L40": 181e12,
    "NVIDIA L40S": 362e12,
    "NVIDIA RTX 6000 Ada": 364.2e12,
    "NVIDIA RTX A6000": 154.8e12,
    "Tesla T4": 65e12,
    "Tesla V100": 125e12,
}


def find_peak() -> float | None:
    """Returns the peak operations per second of all devices together; None: it is not known."""
    kind = jax.devices()[0].device_kind
    # The longest name, as "TPU v5 lite" is no "TPU v5".
    name = max((name for name in PEAKS if kind.startswith(name)), key=len, default="")
    return PEAKS[name] * jax.device_count() if name else None
