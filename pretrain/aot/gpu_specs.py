"""Describes the NVIDIA GPUs that a step can be compiled for without having one.

XLA compiles for a GPU by a description of it, and needs its own libraries but no driver.  Numbers
are of NVIDIA's data sheets and of the CUDA C++ Programming Guide, "Compute Capabilities".
"""

import dataclasses
import importlib.util

from jax.experimental import topologies

from pretrain.aot.chips import Chip, Slice
from pretrain.runtime.errors import UserError

PACKAGES = ("jax_plugins.xla_cuda12", "nvidia.cuda_nvcc")
CUDNN = (9, 10)  # the version whose attention the program asks for
# JAX takes three quarters of a card unless told otherwise; this is XLA_PYTHON_CLIENT_MEM_FRACTION.
MEMORY_FRACTION = 0.93

CHIPS = {
    name: Chip(kind, MEMORY_FRACTION * memory, bandwidth, link)
    for name, kind, memory, bandwidth, link in (
        ("a100", "NVIDIA A100", 79.15 * 2**30, 2039e9, 300e9),  # 80 GB, SXM
        ("h100", "NVIDIA H100", 79.1 * 2**30, 3350e9, 450e9),  # SXM
        ("h200", "NVIDIA H200", 139.8 * 2**30, 4800e9, 450e9),
        ("l4", "NVIDIA L4", 22.03 * 2**30, 300e9, 32e9),  # linked by PCIe alone
    )
}


@dataclasses.dataclass(frozen=True)
class Processor:
    """Describes a GPU's processors to the compiler.

    Attributes:
        capability: compute capability.
        cores: streaming multiprocessors, with `fpus` float32 units and `threads` each.
        shared: bytes of shared memory of each; a block gets 1024 less.
        cache: bytes of the level 2 cache.
        clock: GHz.
    """

    capability: tuple[int, int]
    cores: int
    fpus: int
    threads: int
    shared: int
    cache: int
    clock: float


HOPPER = Processor((9, 0), 132, 128, 2048, 228 * 1024, 50 * 2**20, 1.98)
PROCESSORS = {
    "a100": Processor((8, 0), 108, 64, 2048, 164 * 1024, 40 * 2**20, 1.41),
    "h100": HOPPER,
    "h200": HOPPER,
    "l4": Processor((8, 9), 58, 128, 1536, 100 * 1024, 48 * 2**20, 2.04),
}
# `GpuTargetConfigProto` of XLA; what is a number here is the same on all of these cards.
TARGET = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared}
  threads_per_core_limit: {threads}
  core_count: {cores}
  fpus_per_core: {fpus}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}
  l2_cache_size: {cache}
  clock_rate_ghz: {clock}
  device_memory_size: {memory}
  shared_memory_per_block_optin: {block}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: {cudnn[0]} minor: {cudnn[1]} }}
runtime_version {{ major: 12 minor: 8 patch: 0 }}
device_description_str: "{kind}"
"""


def make_slice(name: str, kind: str, count: str) -> Slice:
    """Returns `kind:count`, the GPUs of one host, as devices that are not here.

    Raises:
        UserError: there is no such host, or the compiler is not installed.
    """
    if not count.isdigit() or int(count) < 1:
        raise UserError(f"topology={name!r}: GPUs are counted, as in {kind}:8")
    if missing := [package for package in PACKAGES if not has_package(package)]:
        raise UserError(
            f"to compile for GPUs that are not here, first: pip install 'jax[cuda12]' "
            f"({missing[0]} is not there)"
        )
    target, capability = describe_target(kind), PROCESSORS[kind].capability
    _lower_without_card(capability)
    devices = topologies.get_topology_desc(
        platform="cuda", target_config=target, topology=f"1x1x{count}"
    ).devices
    # A product written in Triton is chosen by timing it on the card.
    options = {"xla_gpu_enable_triton_gemm": False}
    return Slice(name, CHIPS[kind], (int(count),), devices, options)


def describe_target(kind: str) -> str:
    """Returns XLA's description of a card, a text proto."""
    chip, processor = CHIPS[kind], PROCESSORS[kind]
    major, minor = processor.capability
    return TARGET.format(
        **dataclasses.asdict(processor),
        bandwidth=int(chip.bandwidth),
        memory=int(chip.memory / MEMORY_FRACTION),
        block=processor.shared - 1024,
        major=major,
        minor=minor,
        cudnn=CUDNN,
        kind=chip.kind,
    )


def has_package(name: str) -> bool:
    """Checks if a package is installed, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # nor is there what it lies in
        return False


def _lower_without_card(capability: tuple[int, int]) -> None:
    """Lets JAX lower for a card that is described: it asks for the one that is here."""
    from jax._src import xla_bridge
    from jax._src.cudnn import fused_attention_stablehlo as attention

    canonicalize = xla_bridge.canonicalize_platform
    # The devices say they are of "gpu", whose lowering rules JAX finds by a backend that runs
    # (github.com/jax-ml/jax/issues/23971).
    xla_bridge.canonicalize_platform = lambda platform: (
        "cuda" if platform == "gpu" else canonicalize(platform)
    )
    attention.check_cudnn_version = lambda: CUDNN[0] * 10_000 + CUDNN[1] * 100
    parse = lambda text: tuple(int(n) for n in text.split("."))  # noqa: E731
    attention.check_compute_capability = lambda least: capability >= parse(least)
    attention.is_cuda_compute_capability_equal = lambda other: capability == parse(other)
