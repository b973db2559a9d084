"""Parses a compiled program (XLA's HLO text): its instructions, arrays and trip counts.

A module is a list of computations, each a list of lines

    %name = type opcode(%operand, ...), attribute=..., metadata={op_name="jit(f)/..."}

The entry computation runs, and those that its loops, conditionals and calls name.  A computation
that a fusion calls is one operation: its intermediate results never leave the processor.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator

from modules.kernels import RARELY

ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?:\{([^{}]*)\})?")
LINE = re.compile(r"\s+(ROOT )?%?([\w.-]+) = (.*)")
OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(([^()]*)\)?")
HEADER = re.compile(r"(ENTRY )?%?([\w.-]+) .*-> .*\{$")
ELEMENT = re.compile(r"%([\w.-]+)#(\d+)")
FILE = re.compile(r'^(\d+) "(.*)"$', re.MULTILINE)
LOCATION = re.compile(r"(\d+) \{file_name_id=(\d+) .*?line=(\d+)")
FRAME = re.compile(r"(\d+) \{file_location_id=(\d+)")
COUNTER_TEST = ["get-tuple-element", "constant"]  # the operands of `counter < bound`
ITEM_BYTES = {"pred": 1, "bf16": 2, "f16": 2, "token": 0, "opaque": 0}


@dataclasses.dataclass(frozen=True)
class Array:
    """An array and its place: `bf16[8,100]{1,0:T(8,128)S(1)}` is tiled, in memory space 1.

    Attributes:
        bytes: memory that it takes, padded to whole tiles.
        space: 0 is the device's main memory; on a TPU 1 is VMEM, within the processor.
    """

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    space: int

    @property
    def unpadded_bytes(self) -> int:
        return math.prod(self.shape) * count_item_bytes(self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def parse_array(dtype: str, dims: str, layout: str) -> Array:
    """Builds an Array from the three groups that `ARRAY` matches in its text."""
    shape = tuple(int(n) for n in dims.split(",") if n)
    order, _, placement = (layout or "").partition(":")
    # The layout lists axes from the one whose entries are neighbours in memory.
    minor = [int(n) for n in order.split(",") if n] or list(range(len(shape)))[::-1]
    tile = re.search(r"T\(([\d,]+)\)", placement)
    tiles = [int(n) for n in tile[1].split(",")][::-1] if tile else []
    padded = list(shape)
    # A tile spans the last axes only: the others are not padded, hence strict=False.
    for axis, size in zip(minor, tiles, strict=False):
        padded[axis] = -(-shape[axis] // size) * size
    space = re.search(r"S\((\d+)\)", placement)
    size = math.prod(padded) * count_item_bytes(dtype)
    return Array(dtype, shape, size, int(space[1]) if space else 0)


def count_item_bytes(dtype: str) -> int:
    # Types of 4 bits count as one byte.
    bits = re.search(r"\d+", dtype)
    return ITEM_BYTES.get(dtype, max(int(bits[0]) // 8, 1) if bits else 1)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation.

    Attributes:
        arrays: its results.
        arguments: the text between its parentheses.
        attributes: the text after them.
    """

    name: str
    op: str
    arrays: tuple[Array, ...]
    arguments: str
    attributes: str

    @functools.cached_property
    def operands(self) -> list[str]:
        return re.findall(r"%([\w.-]+(?:#\d+)?)", self.arguments)

    @functools.cached_property
    def op_name(self) -> str:
        """Returns its origin in the traced program: `jit(train_step)/jvp(Objective)/...`."""
        match = re.search(r'op_name="([^"]*)"', self.attributes)
        return match[1] if match else ""

    @functools.cached_property
    def bytes(self) -> int:
        return sum(x.bytes for x in self.arrays)

    @property
    def index(self) -> int:
        match = re.search(r"index=(\d+)", self.attributes)
        return int(match[1]) if match else 0

    def callees(self, *attributes: str) -> list[str]:
        """Returns the computations named by attributes like `body=%name`, `branches={%a, %b}`."""
        pattern = rf"(?:{'|'.join(attributes)})=(?:\{{([^}}]*)\}}|(%?[\w.-]+))"
        matches = re.findall(pattern, self.attributes)
        return [name.strip(" %") for many, one in matches for name in (many or one).split(",")]


class Program:
    """A parsed HLO module.

    Attributes:
        computations: name -> its instructions, by name and in the order of execution.
        roots: name -> the instruction that it returns.
        entry: the name of the computation that runs first.
        sources: a stack frame's number -> (file, line) that it stands at.
    """

    def __init__(self, text: str):
        self.computations: dict[str, dict[str, Instruction]] = {}
        self.roots: dict[str, Instruction] = {}
        name = self.entry = ""
        self.sources = _parse_sources(text)
        elements: dict[str, set[int]] = {}  # of results that are tuples, by these
        for whole, index in ELEMENT.findall(text):
            elements.setdefault(whole, set()).add(int(index))
        # A kernel's own words may be written over several lines: {, "a":"b" and }.
        for line in re.sub(r'(?<=\{)\n(?=")|\n(?=\})(?=\}[,}])', "", text).splitlines():
            if header := HEADER.match(line):
                name = header[2]
                self.computations[name] = {}
                self.entry = name if header[1] else self.entry
            elif (match := LINE.match(line)) and (i := _parse_instruction(match[2], match[3])):
                self.computations[name][i.name] = i
                for index in elements.get(i.name, ()):
                    element = _take_element(i, index)
                    self.computations[name][element.name] = element
                if match[1]:
                    self.roots[name] = i

    def find_source(self, i: Instruction) -> tuple[str, int]:
        """Returns (file, line) that an instruction was traced at; ("", 0): that is not known."""
        frame = re.search(r"stack_frame_id=(\d+)", i.attributes)
        return self.sources.get(int(frame[1]), ("", 0)) if frame else ("", 0)

    def parameters(self, computation: str) -> list[Instruction]:
        """Returns a computation's parameters in the order of its arguments."""
        instructions = self.computations[computation].values()
        return sorted(
            (i for i in instructions if i.op == "parameter"), key=lambda i: int(i.arguments)
        )

    def executions(self) -> Iterator[tuple[str, float]]:
        """Yields (computation, number of executions), a loop's body by the loop's trip count."""
        yield from self._executions(self.entry, 1.0)

    def _executions(self, name: str, times: float) -> Iterator[tuple[str, float]]:
        yield name, times
        for i in self.computations[name].values():
            if i.op == "while":
                # One whose trip count depends on the data counts once; `data_dependent_loops` lists
                # those.
                body_times = times * (self.trip_count(i) or 1)
                yield from self._executions(i.callees("body")[0], body_times)
            elif i.op == "conditional":  # an upper bound: the longest branch may never run
                branches = i.callees("branch_computations", "true_computation", "false_computation")
                usual = [name for name in branches if not self._is_rare(name)]
                longest = max(usual or branches, key=lambda name: len(self.computations[name]))
                yield from self._executions(longest, times)
            elif i.op in ("call", "async-start"):  # async-done only waits
                for callee in i.callees("to_apply", "calls"):
                    yield from self._executions(callee, times)

    def _is_rare(self, name: str) -> bool:
        return any(RARELY in i.op_name for i in self.computations[name].values())

    def data_dependent_loops(self) -> list[str]:
        """Returns the op_name of every loop whose trip count depends on the data."""
        return [
            i.op_name
            for name, _ in self.executions()
            for i in self.computations[name].values()
            if i.op == "while" and self.trip_count(i) is None
        ]

    def trip_count(self, loop: Instruction) -> int | None:
        """Returns a loop's number of iterations; None if that depends on the data."""
        if known := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.attributes):
            return int(known[1])
        # Else it is read from a condition `counter < constant` whose counter grows by a constant: 1
        # in a loop of JAX, more where the compiler has unrolled it.
        (condition,), (body,) = loop.callees("condition"), loop.callees("body")
        # The condition's root compares the counter, an element of the loop's state, to a bound.
        test, instructions = self.roots[condition], self.computations[condition]
        compared = [instructions[name] for name in test.operands if name in instructions]
        if "direction=LT" not in test.attributes or [i.op for i in compared] != COUNTER_TEST:
            return None
        # The body returns the state as a tuple: the counter's new value stands at the same index.
        updated = self.skip_copies(body, self.roots[body].operands[compared[0].index])
        addends = [self.skip_copies(body, name) for name in updated.operands]
        steps = [int(i.arguments) for i in addends if i.op == "constant"]
        if updated.op != "add" or len(steps) != 1:
            return None
        return -(-int(compared[1].arguments) // steps[0])

    def skip_copies(self, computation: str, name: str) -> Instruction:
        i = self.computations[computation][name]
        return self.skip_copies(computation, i.operands[0]) if i.op in ("copy", "bitcast") else i


def _parse_instruction(name: str, text: str) -> Instruction | None:
    match = OPCODE.search(" " + text)
    if not match:  # a line without an opcode is no instruction
        return None
    # The text before the opcode is the type of the result.
    arrays = tuple(parse_array(*groups) for groups in ARRAY.findall(text[: match.start()]))
    return Instruction(name, match[1], arrays, match[2], text[match.end() - 1 :])


def _take_element(i: Instruction, index: int) -> Instruction:
    """Makes the instruction that newer texts leave out, where they write `%i#index`."""
    name, attributes = f"{i.name}#{index}", f", index={index}"
    return Instruction(name, "get-tuple-element", (i.arrays[index],), f"%{i.name}", attributes)


def _parse_sources(text: str) -> dict[int, tuple[str, int]]:
    """Reads the tables before the computations: of files, of places in them, of stack frames."""
    tables = text[: text.find("\n\n%") if "\n\n%" in text else None]
    # Names of functions stand in a table of the same form, behind that of files.
    files = {int(n): file for n, file in FILE.findall(tables.partition("FunctionNames")[0])}
    places = {
        int(n): (files.get(int(file), ""), int(line)) for n, file, line in LOCATION.findall(tables)
    }
    return {int(n): places.get(int(place), ("", 0)) for n, place in FRAME.findall(tables)}
