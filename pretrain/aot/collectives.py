"""Finds a compiled program's collectives: their arrays, the devices that take part, how often."""

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from pretrain.aot.hlo import Array, Instruction, Program

KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "ragged-all-to-all",
    "collective-broadcast",
)
STRIDED = re.compile(r"replica_groups=\[\d+,(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")


@dataclasses.dataclass(frozen=True)
class Collective:
    """A collective operation and its number of executions in a step.

    Attributes:
        arrays: its results on one device.
        group: the devices of the first group, as positions in the mesh.
        count: executions in a step.
    """

    kind: str
    arrays: tuple[Array, ...]
    group: tuple[int, ...]
    count: float
    op_name: str

    @property
    def bytes(self) -> int:
        return sum(x.unpadded_bytes for x in self.arrays)

    @property
    def bytes_received(self) -> float:
        """Returns the bytes that a device receives over its links, per execution."""
        n = len(self.group)
        # A ring all-reduce is a reduce-scatter and then an all-gather.
        factors = {"all-reduce": 2 * (n - 1) / n, "reduce-scatter": n - 1, "collective-permute": 1}
        return self.bytes * factors.get(self.kind, (n - 1) / n)


def find_collectives(program: Program, devices: int) -> list[Collective]:
    """Lists the collectives that run; one that overlaps other work in pieces is listed once."""
    collectives = []
    for name, times in program.executions():
        for kind, i, origin in _iter_collectives(program, name):
            group = tuple(parse_first_group(i.attributes, devices))
            if len(group) > 1:  # a group of one device sends nothing
                collectives.append(Collective(kind, _select_results(i), group, times, origin))
    return collectives


def _iter_collectives(program: Program, computation: str) -> Iterator[tuple[str, Instruction, str]]:
    """Yields (kind, instruction, op_name) of each collective that starts in a computation."""
    instructions, root = program.computations[computation].values(), program.roots[computation]
    starts = any("AsyncCollectiveStart" in i.attributes for i in instructions)
    for i in instructions:
        if i.op == "fusion":
            for kind, inner, origin in _iter_collectives(program, *i.callees("calls")):
                yield kind, inner, origin or i.op_name
        elif (kind := i.op.removesuffix("-start")) in KINDS:
            if "chain_id=" in i.attributes and not starts:
                continue  # a TPU continues it beside other work, maybe in another loop
            # A TPU writes a reduce-scatter as an all-reduce and a slice of its result.
            if kind == "all-reduce" and root.op == "dynamic-slice" and i.name in root.operands:
                kind, i = "reduce-scatter", dataclasses.replace(i, arrays=root.arrays)
            yield kind, i, i.op_name


def _select_results(i: Instruction) -> tuple[Array, ...]:
    # An async start's tuple holds (operands, results).
    if i.op in ("all-gather-start", "collective-permute-start"):
        arrays = [x for x in i.arrays if x.shape]  # without the counters of the context
        return tuple(arrays[len(arrays) // 2 :])
    return i.arrays


def parse_first_group(attributes: str, devices: int) -> list[int]:
    """Returns the devices of a collective's first group, from any notation of its attributes."""
    if listed := re.search(r"source_target_pairs=\{([\d,{}]*)\}", attributes):
        pairs = re.findall(r"(\d+),(\d+)", listed[1])
        return next(([int(a), int(b)] for a, b in pairs if a != b), [0])
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
        return [int(n) for n in listed[1].split(",")]
    # [4,2]<=[2,4]T(1,0): 0..7 in a 2 x 4 grid, transposed, then cut into 4 groups of 2.
    if strided := STRIDED.search(attributes):
        size, dims, transposition = strided.groups()
        shape = [int(n) for n in dims.split(",")]
        order = [int(n) for n in transposition.split(",")] if transposition else range(len(shape))
        return _make_grid(shape).transpose(order).reshape(-1, int(size))[0].tolist()
    if axes := re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", attributes):
        return _parse_mesh_group(axes[1], axes[2])
    return list(range(devices))


def _parse_mesh_group(mesh: str, axes: str) -> list[int]:
    """Reads `'a'=2,'b'=8` and `'a','b':(2)4`, where (2)4 is 4 positions with 2 before them."""
    sizes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", mesh)}
    group_axes = re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", axes)
    names = {name for name, *_ in group_axes}
    shape: list[int] = []
    index: list[int | slice] = []
    for name, size in sizes.items():
        parts = [(int(before), int(n)) for axis, before, n in group_axes if axis == name and n]
        # Every axis is split into (before, part, after), of which the group spans the part.
        for before, part in parts or [(1, size)]:
            shape += [before, part, size // before // part]
            index += [0, slice(None) if name in names else 0, 0]
    return np.asarray(_make_grid(shape)[tuple(index)]).reshape(-1).tolist()


def _make_grid(shape: Sequence[int]) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)
