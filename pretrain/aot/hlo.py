"""A compiled program's text (XLA's HLO): which instructions run, how often, on which arrays.

A module is a list of computations, each a list of lines

    %name = type opcode(%operand, ...), attribute=..., metadata={op_name="jit(f)/..."}

of which the entry runs, and what its loops, conditionals and calls name.  Computations that a
fusion calls are not run one by one: nothing in them leaves the processor.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator

ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?:\{([^{}]*)\})?")
LINE = re.compile(r"\s+(ROOT )?%?([\w.-]+) = (.*)")
OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(([^()]*)\)?")
BEGIN = re.compile(r"(ENTRY )?%?([\w.-]+) .*-> .*\{$")
COUNTED = ["get-tuple-element", "constant"]  # what `counter < bound` compares
SIZES = {"pred": 1, "bf16": 2, "f16": 2, "token": 0, "opaque": 0}


@dataclasses.dataclass(frozen=True)
class Array:
    """`bf16[8,100]{1,0:T(8,128)S(1)}`: laid out row by row, in tiles, in memory space 1.

    Attributes:
        bytes: what it takes in memory, filled up to whole tiles.
        space: 0 is the device's main memory; on a TPU 1 is VMEM, within the processor.
    """

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    space: int

    @property
    def content(self) -> int:
        """Bytes of its entries alone."""
        return math.prod(self.shape) * width(self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def array(dtype: str, dims: str, layout: str) -> Array:
    """Of the three parts of its text."""
    shape = tuple(int(n) for n in dims.split(",") if n)
    order, _, places = (layout or "").partition(":")
    minor = [int(n) for n in order.split(",") if n] or list(range(len(shape)))[::-1]
    tile = re.search(r"T\(([\d,]+)\)", places)
    tiles = [int(n) for n in tile[1].split(",")][::-1] if tile else []
    padded = list(shape)
    for axis, size in zip(minor, tiles, strict=False):
        padded[axis] = -(-shape[axis] // size) * size
    space = re.search(r"S\((\d+)\)", places)
    return Array(dtype, shape, math.prod(padded) * width(dtype), int(space[1]) if space else 0)


def width(dtype: str) -> int:
    """Bytes of one entry; of 4 bits, as of one byte."""
    bits = re.search(r"\d+", dtype)
    return SIZES.get(dtype, max(int(bits[0]) // 8, 1) if bits else 1)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """A line: `arrays` are what it makes, `operands` the names it reads, `rest` its attributes."""

    name: str
    op: str
    arrays: tuple[Array, ...]
    inside: str  # of the parentheses
    rest: str

    @functools.cached_property
    def operands(self) -> list[str]:
        return re.findall(r"%([\w.-]+)", self.inside)

    @functools.cached_property
    def op_name(self) -> str:
        """Where in the traced program it is from: `jit(train_step)/jvp(Objective)/...`."""
        found = re.search(r'op_name="([^"]*)"', self.rest)
        return found[1] if found else ""

    @functools.cached_property
    def bytes(self) -> int:
        return sum(x.bytes for x in self.arrays)

    @property
    def index(self) -> int:
        """Of a get-tuple-element: which."""
        found = re.search(r"index=(\d+)", self.rest)
        return int(found[1]) if found else 0

    def called(self, *attributes: str) -> list[str]:
        """The computations that it names, as `body=%name` or `branches={%one, %two}`."""
        found = re.findall(rf"(?:{'|'.join(attributes)})=(?:\{{([^}}]*)\}}|(%?[\w.-]+))", self.rest)
        return [name.strip(" %") for many, one in found for name in (many or one).split(",")]


class Program:
    """A module, parsed.

    Attributes:
        computations: name -> its instructions, by name and in the order in which they run.
        roots: name -> the instruction that it returns.
        entry: the name of the one that runs.
    """

    def __init__(self, text: str):
        self.computations: dict[str, dict[str, Instruction]] = {}
        self.roots: dict[str, Instruction] = {}
        name = self.entry = ""
        for line in text.splitlines():
            if begin := BEGIN.match(line):
                name = begin[2]
                self.computations[name] = {}
                self.entry = name if begin[1] else self.entry
            elif (found := LINE.match(line)) and (made := _instruction(found[2], found[3])):
                self.computations[name][made.name] = made
                if found[1]:
                    self.roots[name] = made

    def parameters(self, computation: str) -> list[Instruction]:
        """In their order."""
        own = [i for i in self.computations[computation].values() if i.op == "parameter"]
        return sorted(own, key=lambda i: int(i.inside))

    def runs(self) -> Iterator[tuple[str, float]]:
        """(computation, how often) of all that run, a loop's body as often as the loop turns.

        Of a conditional the longer branch runs.  A loop whose turns cannot be told counts once:
        see `endless`.
        """
        yield from self._runs(self.entry, 1.0)

    def _runs(self, name: str, times: float) -> Iterator[tuple[str, float]]:
        yield name, times
        for i in self.computations[name].values():
            if i.op == "while":
                yield from self._runs(i.called("body")[0], times * (self.turns(i) or 1))
            elif i.op == "conditional":
                branches = i.called("branch_computations", "true_computation", "false_computation")
                longest = max(branches, key=lambda name: len(self.computations[name]))
                yield from self._runs(longest, times)
            elif i.op in ("call", "async-start"):
                for called in i.called("to_apply", "calls"):
                    yield from self._runs(called, times)

    def endless(self) -> list[str]:
        """Where the loops are from whose turns depend on the data."""
        return [
            i.op_name
            for name, _ in self.runs()
            for i in self.computations[name].values()
            if i.op == "while" and self.turns(i) is None
        ]

    def turns(self, loop: Instruction) -> int | None:
        """How often a loop turns; None where that depends on the data.

        As the compiler says, or where the condition is `counter < constant` and each turn adds a
        constant to the counter: 1 in a loop of JAX, more where the compiler has unrolled it.
        """
        if known := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.rest):
            return int(known[1])
        (condition,), (body,) = loop.called("condition"), loop.called("body")
        test, own = self.roots[condition], self.computations[condition]
        compared = [own[name] for name in test.operands if name in own]
        if "direction=LT" not in test.rest or [i.op for i in compared] != COUNTED:
            return None
        last = self.traced(body, self.roots[body].operands[compared[0].index])
        added = [self.traced(body, name) for name in last.operands]
        steps = [int(i.inside) for i in added if i.op == "constant"]
        if last.op != "add" or len(steps) != 1:
            return None
        return -(-int(compared[1].inside) // steps[0])

    def traced(self, computation: str, name: str) -> Instruction:
        """What a copy is of."""
        i = self.computations[computation][name]
        return self.traced(computation, i.operands[0]) if i.op in ("copy", "bitcast") else i


def _instruction(name: str, text: str) -> Instruction | None:
    found = OPCODE.search(" " + text)
    if not found:
        return None
    arrays = tuple(array(*each) for each in ARRAY.findall(text[: found.start()]))
    return Instruction(name, found[1], arrays, found[2], text[found.end() - 1 :])
