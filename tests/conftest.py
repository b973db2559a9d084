"""Every test runs on the CPU, as eight devices, and compiles for itself, as quickly as may be."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
# XLA's older loops compile in half the time; a release without that option passes over it.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_force_host_platform_device_count=8"
    + " --xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters"
)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
