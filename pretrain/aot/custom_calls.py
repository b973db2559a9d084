"""Counts the FLOPs and results of calls into a GPU's libraries, and of kernels in Pallas.

The compiler writes them as `custom-call(...), custom_call_target="__cublas$gemm"`, with what they
compute in a `backend_config` of JSON.
"""

import collections
import math
import re
from collections.abc import Sequence

from pretrain.aot.hlo import Array, Instruction, Program

LIBRARIES = ("__cublas", "__cudnn")
PALLAS = "tpu_custom_call"
MOSAIC = "mosaic_gpu_v2"  # Pallas on GPUs
WORKSPACE = ("s8", "u8")  # a library's own memory, which is a result of the call, too


def find_target(i: Instruction) -> str:
    """Returns what a custom call calls; "" for all other instructions."""
    match = (
        re.search(r'custom_call_target="([^"]*)"', i.attributes) if i.op == "custom-call" else None
    )
    return match[1] if match else ""


def count_calls(program: Program) -> dict[str, float]:
    """Counts the calls into each library function in a step: which attention has been chosen."""
    counts: dict[str, float] = collections.defaultdict(float)
    for name, times in program.executions():
        for i in program.computations[name].values():
            if find_target(i).startswith((*LIBRARIES, PALLAS, MOSAIC)):
                counts[find_target(i)] += times
    return dict(counts)


def list_results(i: Instruction) -> Sequence[Array]:
    """Lists the arrays that an instruction makes, without the workspace of a library."""
    if not find_target(i).startswith(LIBRARIES):
        return i.arrays
    return [x for x in i.arrays if x.dtype not in WORKSPACE]


def count_call_flops(i: Instruction, operands: Sequence[Array]) -> float:
    """Counts the operations of a call's matrix products, a multiply-add as two."""
    target = find_target(i)
    if target == PALLAS:  # what the kernel says of itself
        match = re.search(r'"cost_estimate": ?\{"flops": ?"(\d+)"', i.attributes)
        return float(match[1]) if match else _count_splash_flops(i)
    if target == MOSAIC:  # which says it by the name of its scope, see `gpu_attention.Call`
        match = re.search(r'op_name="[^"]*_flops_(\d+)', i.attributes)
        return float(match[1]) if match else 0.0
    if target.startswith("__cublas"):
        axes = _read_numbers("lhs_contracting_dimensions", i)
        return 2.0 * math.prod(i.arrays[0].shape) * math.prod(operands[0].shape[n] for n in axes)
    if target.startswith("__cudnn$fmha"):
        # The scores, [B, H, L, J], and the width of a head, of the queries.
        scores = math.prod(_read_numbers("dimensions", i))
        products = 5 if "Backward" in target else 2
        # Under a causal mask the kernel leaves out half.
        is_causal = re.search(r'"mask_type": ?"\w*CAUSAL"', i.attributes)
        return products * 2.0 * scores * operands[0].shape[-1] * (0.5 if is_causal else 1)
    return 0.0


def _count_splash_flops(i: Instruction) -> float:
    # Its scope names those of two products, see `splash_attention`: backwards there are more.
    match = re.search(r'op_name="[^"]*splash_flops_(\d+)[^"]*splash_mha_(fwd|dq|dkv)', i.attributes)
    return float(match[1]) / 2 * {"fwd": 2, "dq": 3, "dkv": 4}[match[2]] if match else 0.0


def _read_numbers(name: str, i: Instruction) -> list[int]:
    """Reads a list of numbers, which JSON has as strings, from a call's configuration."""
    match = re.search(rf'"{name}": ?\[([^\]]*)\]', i.attributes)
    return [int(n) for n in match[1].replace('"', "").split(",") if n.strip()] if match else []
