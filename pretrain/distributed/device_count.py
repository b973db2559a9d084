"""Predicts how many devices a run will have, before anything touches one."""

import importlib.metadata
import importlib.util
import os
import re

import jax

FAKE = re.compile(r"--xla_force_host_platform_device_count=(\d+)")
# Of clusters that JAX recognises by itself: how many processes join is not known here.
CLUSTERS = ("SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri", "KUBERNETES_SERVICE_HOST", "TPU_WORKER_ID")


def predict_count() -> int:
    """Predicts the number of devices of all processes of this run; 0: it shows once they join.

    CPU devices alone can be counted so: a backend of others is not to start before the processes
    have joined.
    """
    if not _is_on_cpu() or any(map(os.environ.get, CLUSTERS)):
        return 0
    processes = os.environ.get("JAX_NUM_PROCESSES") or "1"
    fake = FAKE.findall(os.environ.get("XLA_FLAGS", ""))
    own = jax.config.values["jax_num_cpu_devices"]
    # The last of several flags counts, as for XLA.
    each = own if own > 0 else int(fake[-1]) if fake else 1
    return int(processes) * each if processes.isdecimal() else 0


def _is_on_cpu() -> bool:
    if platforms := jax.config.values["jax_platforms"]:
        return platforms == "cpu"
    if importlib.util.find_spec("libtpu") or importlib.util.find_spec("jax_plugins"):
        return False
    return not importlib.metadata.entry_points(group="jax_plugins")
