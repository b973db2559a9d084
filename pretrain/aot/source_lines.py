"""Explains the least time of a step by the lines of source that its operations come from."""

import os
from typing import NamedTuple

from pretrain.aot.chips import Chip
from pretrain.aot.hlo import Instruction, Program
from pretrain.aot.roofline import list_costs


class Share(NamedTuple):
    """The part of a step that comes from one line.

    Attributes:
        source: `file:line`, and whether it is of the backward pass.
        launches: operations that it starts.
        seconds: their least time.
    """

    source: str
    launches: float
    flops: float
    bytes_accessed: float
    seconds: float


HEAD = f"{'ms':>10}{'of all':>8}{'launches':>10}{'TFLOP':>9}{'GB':>10}  source"


def list_shares(program: Program, chip: Chip) -> list[Share]:
    """Lists the shares of all lines, the one that takes longest first."""
    shares: dict[str, Share] = {}
    for cost in list_costs(program):
        source = _name_source(program, cost.instruction)
        work = (cost.times * cost.flops, cost.times * cost.bytes_accessed, cost.seconds(chip))
        if cost.bytes_accessed or cost.flops:
            known = shares.get(source, Share(source, 0, 0, 0, 0))
            added = (a + b for a, b in zip(known[1:], (cost.times, *work), strict=True))
            shares[source] = Share(source, *added)
    return sorted(shares.values(), key=lambda x: -x.seconds)


def format_table(shares: list[Share], lines: int = 30) -> list[str]:
    """Returns a line per share, the first so many."""
    whole = sum(x.seconds for x in shares)
    return [HEAD] + [
        f"{x.seconds * 1e3:>10.3f}{x.seconds / whole:>8.1%}{x.launches:>10,.0f}"
        f"{x.flops / 1e12:>9.3f}{x.bytes_accessed / 1e9:>10.2f}  {x.source}"
        for x in shares[:lines]
    ]


def _name_source(program: Program, i: Instruction) -> str:
    file, line = program.find_source(i)
    # The compiler's own operations come from no line; their names say what they are.
    place = f"{os.path.relpath(file)}:{line}" if file else i.op
    return f"{place}, backwards" if "transpose(" in i.op_name else place
