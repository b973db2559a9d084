"""What a compiled program's devices tell each other: which arrays, among whom, how often."""

import dataclasses
import math
import re
from collections.abc import Iterator

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
    """One, and how often it runs in a step.

    Attributes:
        arrays: what it makes on a device.
        group: devices that take part, as places in the mesh: those of the first group.
    """

    kind: str
    arrays: tuple[Array, ...]
    group: tuple[int, ...]
    times: float
    op_name: str

    @property
    def bytes(self) -> int:
        """Of what it makes, each time."""
        return sum(x.content for x in self.arrays)

    @property
    def received(self) -> float:
        """Bytes that must reach a device through its links, each time."""
        n = len(self.group)
        shares = {"all-reduce": 2 * (n - 1) / n, "reduce-scatter": n - 1, "collective-permute": 1}
        return self.bytes * shares.get(self.kind, (n - 1) / n)


def collectives(program: Program, devices: int) -> list[Collective]:
    """All that run; one that is taken in pieces, beside other work, is one."""
    found = []
    for name, times in program.runs():
        for kind, i, origin in _communicating(program, name):
            group = tuple(groups(i.rest, devices))
            if len(group) > 1:
                found.append(Collective(kind, _makes(i), group, times, origin))
    return found


def _communicating(program: Program, computation: str) -> Iterator[tuple[str, Instruction, str]]:
    """(kind, the instruction, where it is from) of each that begins in a computation."""
    own, root = program.computations[computation].values(), program.roots[computation]
    begins = any("AsyncCollectiveStart" in i.rest for i in own)
    for i in own:
        if i.op == "fusion":
            for kind, inner, origin in _communicating(program, *i.called("calls")):
                yield kind, inner, origin or i.op_name
        elif (kind := i.op.removesuffix("-start")) in KINDS:
            if "chain_id=" in i.rest and not begins:
                continue  # a TPU goes on with it beside other work, maybe in another loop
            # On a TPU a reduce-scatter is an all-reduce of which a slice is kept.
            if kind == "all-reduce" and root.op == "dynamic-slice" and i.name in root.operands:
                kind, i = "reduce-scatter", dataclasses.replace(i, arrays=root.arrays)
            yield kind, i, i.op_name


def _makes(i: Instruction) -> tuple[Array, ...]:
    """Of what starts, the second half: the first is what it reads."""
    if i.op in ("all-gather-start", "collective-permute-start"):
        real = [x for x in i.arrays if x.shape]
        return tuple(real[len(real) // 2 :])
    return i.arrays


def groups(text: str, devices: int) -> list[int]:
    """The first group of a collective's attributes, in any of the forms they take."""
    if listed := re.search(r"source_target_pairs=\{([\d,{}]*)\}", text):
        pairs = re.findall(r"(\d+),(\d+)", listed[1])
        return next(([int(a), int(b)] for a, b in pairs if a != b), [0])
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", text):
        return [int(n) for n in listed[1].split(",")]
    if strided := STRIDED.search(text):
        size, dims, turned = strided.groups()
        shape = [int(n) for n in dims.split(",")]
        order = [int(n) for n in turned.split(",")] if turned else range(len(shape))
        return _grid(shape).transpose(order).reshape(-1, int(size))[0].tolist()
    if named := re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", text):
        return _named(named[1], named[2])
    return list(range(devices))


def _named(mesh: str, axes: str) -> list[int]:
    """`'a'=2,'b'=8` and `'a','b':(2)4`: a part of an axis is (what lies before it) its size."""
    sizes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", mesh)}
    chosen = re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", axes)
    shape, picked = [], []
    for name, size in sizes.items():
        parts = [(int(before), int(own)) for each, before, own in chosen if each == name and own]
        for before, own in parts or [(1, size)]:
            shape += [before, own, size // before // own]
            any_part = any(each == name for each, *_ in chosen)
            picked += [0, slice(None) if any_part else 0, 0]
    return np.asarray(_grid(shape)[tuple(picked)]).reshape(-1).tolist()


def _grid(shape) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)
