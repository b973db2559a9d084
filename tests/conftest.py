"""Every test runs on the CPU, as eight devices, and compiles for itself."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
