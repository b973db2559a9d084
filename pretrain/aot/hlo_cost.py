"""What a compiled program does on each device: products, memory traffic, what it keeps.

The compiler's own `cost_analysis` takes the body of a loop once, however often it turns: of a scan
over layers it counts one.  Here `Program.runs` says how often each instruction runs.
"""

import math
import re
from collections.abc import Iterator

import numpy as np

from pretrain.aot.collectives import KINDS
from pretrain.aot.hlo import Array, Instruction, Program

# These move nothing themselves: they name what is there, or run what is counted by itself.
STILL = {
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
PARTS = ("slice", "dynamic-slice", "gather")  # of what they read


# --- products --------------------------------------------------------------------------------


def flops(program: Program, computation: str, i: Instruction) -> float:
    """Floating-point operations of an instruction's matrix products, a multiply-add as two."""
    if i.op == "fusion":
        (inner,) = i.called("calls")
        return sum(flops(program, inner, each) for each in program.computations[inner].values())
    if i.op not in ("dot", "convolution") or i.arrays[0].dtype[0] not in "bf":
        return 0.0
    shapes = [program.computations[computation][name].arrays[0].shape for name in i.operands]
    return 2.0 * (_dot if i.op == "dot" else _convolution)(i, *shapes)


def _dot(i: Instruction, left, right) -> int:
    contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", i.rest)
    axes = [int(n) for n in contracted[1].split(",") if n] if contracted else []
    return math.prod(i.arrays[0].shape) * math.prod(left[axis] for axis in axes)


def _convolution(i: Instruction, left, right) -> int:
    """A TPU's only product: dimensions of a batch are windows that slide over dilated rows."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", i.rest)
    assert labels, i.rest
    read, kernel, made = labels.groups()
    windows = re.findall(r"window=\{([^}]*)\}", i.rest)
    window = dict(re.findall(r"(\w+)=([\dx_-]+)", "".join(windows)))
    count = math.prod(i.arrays[0].shape[made.index(each)] for each in "bf")
    count *= right[kernel.index("i")]
    for n in range(len(read) - 2):
        sizes = left[read.index(str(n))], right[kernel.index(str(n))]
        own = {name: values.split("x")[n] for name, values in window.items()}
        count *= _meetings(*sizes, i.arrays[0].shape[made.index(str(n))], own)
    return count


def _meetings(size: int, wide: int, places: int, window: dict[str, str]) -> int:
    """Pairs of a place and an entry of the window that meet a real entry of what is read.

    At place o entry j meets o * stride + j * rhs_dilate - pad, which is real within the dilated
    rows where lhs_dilate divides it.  Either may be millions: the places are counted, not tried.
    """
    stride, dilated = int(window.get("stride", 1)), int(window.get("lhs_dilate", 1))
    before = int(window.get("pad", "0_0").split("_")[0])
    shift = np.arange(wide, dtype=np.int64) * int(window.get("rhs_dilate", 1)) - before
    common = math.gcd(stride, dilated)
    every = dilated // common  # of the places, where one is real
    first = -shift // common % every * pow(stride // common, -1, every) % every
    low = np.maximum(-(shift // stride), 0)
    high = np.minimum(((size - 1) * dilated - shift) // stride, places - 1)
    count = (high - first) // every - (low - 1 - first) // every
    return int(np.where((shift % common == 0) & (high >= low), count, 0).sum())


# --- traffic ---------------------------------------------------------------------------------


def traffic(program: Program, computation: str, i: Instruction) -> float:
    """Bytes that an instruction moves between the main memory and the processor.

    Of what it takes slices of, the slices; of what it writes into, what it writes.  Collectives'
    own count as theirs.
    """
    own = program.computations[computation]
    if i.op in STILL or (i.op == "custom-call" and "Bitcast" in i.rest):
        return 0.0
    if i.op == "copy-start":
        return float(sum(x.bytes for x in i.arrays[:2] if x.space == 0))
    given = [own[name] for name in i.operands]
    read = [float(x.bytes * _main(x)) for x in given]
    made = float(sum(x.bytes for x in i.arrays if x.space == 0))
    if i.op == "fusion":
        (inner,) = i.called("calls")
        kept = [min(_read(program, inner, p), p.bytes) for p in program.parameters(inner)]
        kept = [few if many else 0.0 for many, few in zip(read, kept, strict=True)]
        return sum(kept) + _written(program, inner, program.roots[inner], i.arrays)
    if i.op in PARTS:
        return made + min(sum(read), i.bytes)
    if i.op == "dynamic-update-slice":
        return 2.0 * own[i.operands[1]].bytes * _main(i)
    return made + sum(read)


def _main(i: Instruction) -> bool:
    return all(x.space == 0 for x in i.arrays)


def _read(program: Program, computation: str, given: Instruction) -> float:
    """How much of an array a fused computation reads."""
    total = 0.0
    for user in program.computations[computation].values():
        if given.name not in user.operands:
            continue
        if user.op in PARTS and user.operands[0] == given.name:
            total += user.bytes
        elif user.op == "fusion":
            (inner,) = user.called("calls")
            places = [k for k, name in enumerate(user.operands) if name == given.name]
            inputs = program.parameters(inner)
            total += sum(_read(program, inner, inputs[k]) for k in places)
        elif user.op == "bitcast":
            total += _read(program, computation, user)
        elif user.op == "dynamic-update-slice" and user.operands[0] == given.name:
            total += 0.0
        elif user.op != "tuple" and user.op not in STILL:
            return float(given.bytes)
    return total


def _written(program: Program, computation: str, i: Instruction, arrays) -> float:
    """How much a fused computation writes whose result is `i`, into these arrays."""
    own = program.computations[computation]
    if i.op == "tuple":
        pairs = zip(i.operands, arrays, strict=False)
        return sum(_written(program, computation, own[name], [x]) for name, x in pairs)
    if all(x.space for x in arrays) or i.op in STILL - {"bitcast"}:
        return 0.0
    if i.op == "bitcast":
        return _written(program, computation, own[i.operands[0]], arrays)
    if i.op == "dynamic-update-slice":
        return float(own[i.operands[1]].bytes)
    if i.op == "fusion":
        (inner,) = i.called("calls")
        return _written(program, inner, program.roots[inner], arrays)
    return float(sum(x.bytes for x in arrays if x.space == 0))


# --- memory ----------------------------------------------------------------------------------


def kept(program: Program) -> list[Array]:
    """Arrays in main memory that a forward pass leaves for its backward pass: activations.

    Told from where instructions are from: JAX names what it differentiates `jvp(...)` and what
    goes back `transpose(jvp(...))`.  Of several passes, the one that leaves most.
    """
    passes = [_kept(program.computations[name]) for name, _ in program.runs()]
    return max(passes, key=lambda arrays: sum(x.bytes for x in arrays))


def _kept(own: dict[str, Instruction]) -> list[Array]:
    found: dict[tuple[str, int], Array] = {}
    for i in own.values():
        if "transpose(" in i.op_name:
            sources = (each for operand in i.operands for each in _sources(own, operand))
            found |= {key: x for key, x in sources if _forward(own[key[0]])}
    return [x for x in found.values() if x.space == 0]


def _forward(i: Instruction) -> bool:
    inwards = "jvp(" in i.op_name and "transpose(" not in i.op_name
    return inwards and i.op not in ("parameter", "constant")


def _sources(own: dict[str, Instruction], name: str) -> Iterator[tuple[tuple[str, int], Array]]:
    """((instruction, which of its results), array) of all that a name stands for."""
    i = own.get(name)
    if i is None:
        return
    if i.op in ("tuple", "bitcast", "copy", "copy-start", "copy-done"):
        for operand in i.operands:
            yield from _sources(own, operand)
    elif i.op == "get-tuple-element":
        made = own.get(i.operands[0])
        if made and made.op == "tuple":
            yield from _sources(own, made.operands[i.index])
        elif made:
            yield (made.name, i.index), i.arrays[0]
    elif len(i.arrays) == 1:
        yield (name, 0), i.arrays[0]
