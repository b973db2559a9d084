"""Counts the FLOPs, the memory traffic and the saved activations of a compiled program.

The compiler's `cost_analysis` counts the body of a loop once, whatever its trip count: of a scan
over layers it sees one.  `Program.executions` gives the true number.
"""

import math
import re
from collections.abc import Iterator

import numpy as np

from pretrain.aot.collectives import KINDS
from pretrain.aot.custom_calls import count_call_flops, list_results
from pretrain.aot.hlo import Array, Instruction, Program

# These move nothing themselves: they name an array, or run a computation that is counted itself.
NO_TRAFFIC = {
    "parameter",
    "constant",
    "get-tuple-element",
    "tuple",
    "bitcast",
    "while",
    "conditional",
    "call",
    "copy-done",
    "async-start",
    "async-done",
    "async-update",
    "opt-barrier",
    "after-all",
    "partition-id",
    "replica-id",
    *(f"{op}{end}" for op in KINDS for end in ("", "-start", "-done")),
}
SLICING = ("slice", "dynamic-slice", "gather")  # these read a part of their operand


# --- FLOPs -----------------------------------------------------------------------------------


def count_flops(program: Program, computation: str, i: Instruction) -> float:
    """Counts the operations of an instruction's matrix products, a multiply-add as two."""
    if i.op == "fusion":
        (inner,) = i.callees("calls")
        return sum(count_flops(program, inner, x) for x in program.computations[inner].values())
    operands = [program.computations[computation][name].arrays[0] for name in i.operands]
    if i.op == "custom-call":
        return count_call_flops(i, operands)
    # Products of integers and of bools do not use the matrix units.
    if i.op not in ("dot", "convolution") or i.arrays[0].dtype[0] not in "bf":
        return 0.0
    shapes = [x.shape for x in operands]
    return 2.0 * (_count_dot_products if i.op == "dot" else _count_convolution_products)(i, *shapes)


def _count_dot_products(i: Instruction, left, right) -> int:
    contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", i.attributes)
    # Every entry of the result sums over the contracted axes; batch axes are in the result.
    axes = [int(n) for n in contracted[1].split(",") if n] if contracted else []
    return math.prod(i.arrays[0].shape) * math.prod(left[axis] for axis in axes)


def _count_convolution_products(i: Instruction, left, right) -> int:
    # A TPU writes every product so: batch dimensions become windows that slide over dilated rows.
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", i.attributes)
    assert labels, i.attributes
    read, kernel, result = labels.groups()
    windows = re.findall(r"window=\{([^}]*)\}", i.attributes)
    window = dict(re.findall(r"(\w+)=([\dx_-]+)", "".join(windows)))
    count = math.prod(i.arrays[0].shape[result.index(label)] for label in "bf")
    # "i" of the kernel counts the input features of one group.
    count *= right[kernel.index("i")]
    for n in range(len(read) - 2):  # the spatial dimensions, labelled 0, 1, ...
        size, width = left[read.index(str(n))], right[kernel.index(str(n))]
        options = {name: values.split("x")[n] for name, values in window.items()}
        count *= count_window_hits(size, width, i.arrays[0].shape[result.index(str(n))], options)
    return count


def count_window_hits(size: int, width: int, positions: int, window: dict[str, str]) -> int:
    """Counts pairs (window position, window entry) that meet an entry of the input.

    Args:
        size: entries of the input along this dimension.
        width: entries of the window.
        positions: entries of the result.
        window: the options stride, lhs_dilate, rhs_dilate and pad, as the program spells them.
    """
    stride, dilation = int(window.get("stride", 1)), int(window.get("lhs_dilate", 1))
    before = int(window.get("pad", "0_0").split("_")[0])
    # At position o entry j meets o * stride + j * rhs_dilate - pad, which is within the dilated
    # input and a multiple of lhs_dilate.  Either count may be millions, so it is in closed form.
    shift = np.arange(width, dtype=np.int64) * int(window.get("rhs_dilate", 1)) - before
    common = math.gcd(stride, dilation)
    period = dilation // common  # one position in so many meets an entry
    # The first such position solves o * stride = -shift modulo the dilation.
    first = -shift // common % period * pow(stride // common, -1, period) % period
    low = np.maximum(-(shift // stride), 0)
    high = np.minimum(((size - 1) * dilation - shift) // stride, positions - 1)
    count = (high - first) // period - (low - 1 - first) // period
    return int(np.where((shift % common == 0) & (high >= low), count, 0).sum())


# --- memory traffic --------------------------------------------------------------------------


def count_bytes_accessed(program: Program, computation: str, i: Instruction) -> float:
    """Counts the bytes that an instruction moves between main memory and the processor."""
    instructions = program.computations[computation]
    if i.op in NO_TRAFFIC or (i.op == "custom-call" and "Bitcast" in i.attributes):
        return 0.0
    if i.op == "copy-start":  # its tuple is (target, source, context)
        return float(sum(x.bytes for x in i.arrays[:2] if x.space == 0))
    operands = [instructions[name] for name in i.operands]
    reads = [float(x.bytes * _in_main_memory(x)) for x in operands]
    written = float(sum(x.bytes for x in list_results(i) if x.space == 0))
    if i.op == "fusion":
        (inner,) = i.callees("calls")
        parts = [
            min(_count_bytes_read(program, inner, p), p.bytes) for p in program.parameters(inner)
        ]
        # An operand outside main memory is read for nothing.
        read = sum(part for whole, part in zip(reads, parts, strict=True) if whole)
        return read + _count_bytes_written(program, inner, program.roots[inner], i.arrays)
    if i.op in SLICING:  # only the slice is read
        return written + min(sum(reads), i.bytes)
    if i.op == "dynamic-update-slice":  # the update is read, and written in place
        return 2.0 * instructions[i.operands[1]].bytes * _in_main_memory(i)
    if i.op == "scatter":  # rows are read and written in place
        return 2.0 * _count_rows(instructions, i) * _in_main_memory(i) + sum(reads[len(i.arrays) :])
    return written + sum(reads)


def _count_rows(instructions: dict[str, Instruction], scatter: Instruction) -> float:
    """Counts the bytes of the rows that a scatter updates."""
    # Its operands are as many arrays as it has results, the ids, and as many updates.
    return float(
        sum(instructions[name].bytes for name in scatter.operands[len(scatter.arrays) + 1 :])
    )


def _in_main_memory(i: Instruction) -> bool:
    return all(x.space == 0 for x in i.arrays)


def _count_bytes_read(program: Program, computation: str, operand: Instruction) -> float:
    total = 0.0
    for user in program.computations[computation].values():
        if operand.name not in user.operands:
            continue
        if user.op in SLICING and user.operands[0] == operand.name:
            total += user.bytes
        elif user.op == "fusion":
            (inner,) = user.callees("calls")
            positions = [k for k, name in enumerate(user.operands) if name == operand.name]
            inputs = program.parameters(inner)
            total += sum(_count_bytes_read(program, inner, inputs[k]) for k in positions)
        elif user.op == "bitcast":
            total += _count_bytes_read(program, computation, user)
        elif user.op == "dynamic-update-slice" and user.operands[0] == operand.name:
            total += 0.0  # updated in place: what is not overwritten is not read
        elif user.op == "scatter" and operand.name in user.operands[: len(user.arrays)]:
            total += _count_rows(program.computations[computation], user)
        elif user.op != "tuple" and user.op not in NO_TRAFFIC:
            return float(operand.bytes)
    return total


def _count_bytes_written(program: Program, computation: str, i: Instruction, arrays) -> float:
    instructions = program.computations[computation]
    if i.op == "tuple":  # a fusion of several results
        pairs = zip(i.operands, arrays, strict=False)
        return sum(
            _count_bytes_written(program, computation, instructions[n], [x]) for n, x in pairs
        )
    if all(x.space for x in arrays) or i.op in NO_TRAFFIC - {"bitcast"}:
        return 0.0
    if i.op == "bitcast":
        return _count_bytes_written(program, computation, instructions[i.operands[0]], arrays)
    if i.op == "dynamic-update-slice":
        return float(instructions[i.operands[1]].bytes)
    if i.op == "scatter" and instructions[i.operands[0]].op == "parameter":
        return _count_rows(instructions, i)
    if i.op == "fusion":
        (inner,) = i.callees("calls")
        return _count_bytes_written(program, inner, program.roots[inner], arrays)
    return float(sum(x.bytes for x in arrays if x.space == 0))


def count_launches(program: Program) -> float:
    """Counts the operations that run in a step, each of which is a kernel on a GPU."""
    return sum(
        times * sum(i.op not in NO_TRAFFIC for i in program.computations[name].values())
        for name, times in program.executions()
    )


# --- memory ----------------------------------------------------------------------------------


def list_saved_activations(program: Program) -> list[Array]:
    """Returns the arrays in main memory that the forward pass saves for the backward pass."""
    # A program may have several backward passes: the one that saves most counts.
    passes = [_list_saved_arrays(program.computations[name]) for name, _ in program.executions()]
    return max(passes, key=lambda arrays: sum(x.bytes for x in arrays))


def _list_saved_arrays(instructions: dict[str, Instruction]) -> list[Array]:
    arrays: dict[tuple[str, int], Array] = {}  # by its source, so that none counts twice
    for i in instructions.values():
        # An operand of the backward pass that the forward pass made has to be kept for it.
        if "transpose(" in i.op_name:
            sources = (x for operand in i.operands for x in _iter_sources(instructions, operand))
            arrays |= {key: x for key, x in sources if _is_forward(instructions[key[0]])}
    return [x for x in arrays.values() if x.space == 0]


def _is_forward(i: Instruction) -> bool:
    # JAX names the instructions of a forward pass `jvp(...)` and those of the backward pass
    # `transpose(jvp(...))`.
    is_forward = "jvp(" in i.op_name and "transpose(" not in i.op_name
    return is_forward and i.op not in ("parameter", "constant")


def _iter_sources(
    instructions: dict[str, Instruction], name: str
) -> Iterator[tuple[tuple[str, int], Array]]:
    """Yields ((instruction, index of its result), array) behind tuples, copies and bitcasts."""
    i = instructions.get(name)
    if i is None:
        return
    if i.op in ("tuple", "bitcast", "copy", "copy-start", "copy-done"):
        for operand in i.operands:
            yield from _iter_sources(instructions, operand)
    elif i.op == "get-tuple-element":
        source = instructions.get(i.operands[0])
        if source and source.op == "tuple":
            yield from _iter_sources(instructions, source.operands[i.index])
        elif source:
            yield (source.name, i.index), i.arrays[0]
    elif len(i.arrays) == 1:
        yield (name, 0), i.arrays[0]
