"""Their names and ours: which part of which array of theirs is which part of ours.

A row of a table is a name of ours and (theirs, form), as

    "layers/attention/wq_DHK": ("h{n}/attn/c_attn/w", "1D(QHK)", "Q=0/3")

which reads: of every layer n's array, whose axes are 1, D, and three axes in one, the first third
along Q is our wq_DHK of that layer.  Our axes are the letters of our name, or behind an arrow in
the form, as in "OI -> IO".  {n} counts layers and {z} directions, which lead in ours; an array
that holds all layers has no {n}, and its form says where they are: "NHK -> NHK".  Entries of an
axis in another order are axes in one on both sides, as "(FJ)U -> (JF)U", of which "F=/2 J=/2" says
how many entries each has.  "L+2" says that theirs has two entries more, before all others, which
nothing reads: they are zeros where it is written.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pretrain.formats import Spec
from pretrain.runtime.errors import UserError

Shapes = Mapping[str, tuple[int, ...]]  # ours, by path: "backbone/token_VD"
Rows = Mapping[str, Sequence[str]]
MOST = 12  # lines of an error
WEIGHTS = "float32, float16 or bfloat16"
DTYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(jnp.bfloat16))


class Link(NamedTuple):
    """A part of an array of theirs, and the part of ours that it is."""

    theirs: str
    ours: str
    form: str  # "1D(QHK) -> DHK"
    # ("Q", 0, 3): the first of three; ("Q", None, 3): all three
    pick: tuple[tuple[str, int | None, int], ...] = ()
    at: tuple[int, ...] = ()  # where in ours
    skip: tuple[tuple[str, int], ...] = ()  # ("L", 2): entries of theirs that nothing reads

    def read(self, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Returns the part of their array as ours has it; `shape` is of our part."""
        return self._view(x, shape).reshape(shape)

    def write(self, x: np.ndarray, part: np.ndarray) -> None:
        """Writes our part into their array."""
        view = self._view(x, part.shape)
        # Ours is cut apart, not theirs put together: that would be a copy, and nothing be written.
        view[...] = part.reshape(view.shape)

    def _view(self, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Views the part of their array in our order, with an axis for each letter."""
        theirs, ours = _parse_form(self.form)
        sizes = self._their_sizes(shape)
        flat = [letter for group in theirs for letter in group]
        # Letters in parentheses are one axis of theirs; apart, some entries of one can be picked.
        x = x.reshape([sizes[letter] for letter in flat])
        picked: dict[str, Any] = {
            letter: which for letter, which, _ in self.pick if which is not None
        }
        gone = {*picked, "1"}
        picked |= {"1": 0, **{letter: slice(count, None) for letter, count in self.skip}}
        x = x[tuple(picked.get(letter, slice(None)) for letter in flat)]
        left = [letter for letter in flat if letter not in gone]
        return x.transpose([left.index(letter) for group in ours for letter in group])

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of their array, where our part has this one."""
        sizes = self._their_sizes(shape)
        return tuple(math.prod(sizes[x] for x in group) for group in _parse_form(self.form)[0])

    def _their_sizes(self, shape: tuple[int, ...]) -> dict[str, int]:
        sizes = self._sizes(shape)
        return sizes | {letter: sizes[letter] + count for letter, count in self.skip}

    def _sizes(self, shape: tuple[int, ...]) -> dict[str, int]:
        # Where one axis of ours has several letters, `pick` gives their sizes.
        sizes = dict(zip(_parse_form(self.form)[1], shape, strict=True))
        return sizes | {letter: many for letter, _, many in self.pick} | {"1": 1}


def _parse_form(form: str) -> tuple[list[str], list[str]]:
    """Parses "1D(QHK) -> DHK" to the letters of each axis of theirs, and of ours."""
    theirs, ours = (re.findall(r"\((\w+)\)|(\w)", side) for side in form.split(" -> "))
    return [many or one for many, one in theirs], [many or one for many, one in ours]


def expand_rows(rows: Rows, shapes: Shapes) -> list[Link]:
    """Writes the rows out, of the parameters in `shapes`."""
    links = []
    for ours, (theirs, axes, *pick) in rows.items():
        if ours not in shapes:
            continue
        form = axes if " -> " in axes else f"{axes} -> {ours.rpartition('_')[2]}"
        counted = [letter for letter in "nz" if f"{{{letter}}}" in theirs]
        for at in np.ndindex(*shapes[ours][: len(counted)]):
            name = theirs.format(**dict(zip(counted, at, strict=True)))
            links.append(
                Link(name, ours, form, tuple(_parse_picks(*pick)), at, tuple(_parse_skips(*pick)))
            )
    return links


def _parse_skips(text: str = "") -> Iterable[tuple[str, int]]:
    # ("L", 2) of "L+2".
    return [(letter, int(count)) for letter, count in re.findall(r"(\w)\+(\d+)", text)]


def _parse_picks(text: str = "") -> Iterable[tuple[str, int | None, int]]:
    # ("Q", 0, 3) of "Q=0/3"; ("Q", None, 3) of "Q=/3".
    for letter, which, many in re.findall(r"(\w)=(\d*)/(\d+)", text):
        yield letter, int(which) if which else None, int(many)


@dataclasses.dataclass(frozen=True)
class Table:
    """All that can be in a release.

    Attributes:
        links: every part of every array that is a parameter.
        copies: arrays that repeat another one (a tied softmax), and which.
        ignored: patterns of names that are no parameters, and what they are.
        absent: parameters of ours that it has no array for, and why: they are zeros when it is
            read, and left behind when it is written.
    """

    links: Sequence[Link]
    copies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ignored: Mapping[str, str] = dataclasses.field(default_factory=dict)
    absent: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def by_ours(self) -> dict[str, list[Link]]:
        return _group_by(self.links, lambda link: link.ours)

    def by_theirs(self) -> dict[str, list[Link]]:
        return _group_by(self.links, lambda link: link.theirs)

    def specs(self, shapes: Shapes, dtype: Any) -> dict[str, Spec]:
        """Returns shape and dtype of their arrays, where ours have these shapes."""
        return {
            name: Spec(parts[0].shape(shapes[parts[0].ours][len(parts[0].at) :]), np.dtype(dtype))
            for name, parts in self.by_theirs().items()
        }


def _group_by(links: Iterable[Link], name: Callable[[Link], str]) -> dict[str, list[Link]]:
    groups: dict[str, list[Link]] = {}
    for link in links:
        groups.setdefault(name(link), []).append(link)
    return groups


class Reconciliation(NamedTuple):
    """Account of every array of a release and every parameter of ours."""

    mapped: dict[str, list[Link]]  # by ours
    copies: dict[str, str]
    ignored: dict[str, list[str]]  # what they are: names
    absent: dict[str, str]  # of ours: why


def reconcile(
    table: Table,
    shapes: Shapes,
    specs: Mapping[str, Spec],
    ignore: str = "",
    others: Mapping[str, str] | None = None,
) -> Reconciliation:
    """Accounts for every array of a release and every parameter of ours.

    Args:
        ignore: a pattern of further names that are to be left out.
        others: what there is besides and cannot be read, and of what kind it is.

    Raises:
        UserError: one is unexpected, missing, no array of floating point, or of another shape
            than the configuration says; all such are named.
    """
    expected = table.specs(shapes, np.float32)
    patterns = {**table.ignored, **({ignore: "left out as asked"} if ignore else {})}
    ignored: dict[str, list[str]] = {}
    wrong, more = [], []
    for name, spec in specs.items():
        why = next((why for x, why in patterns.items() if re.fullmatch(x, name)), None)
        if name in expected:
            if spec.shape != expected[name].shape:
                wrong.append(f"{name}: {spec.shape} where {expected[name].shape} belongs")
            elif spec.dtype not in DTYPES:
                wrong.append(f"{name}: is {spec.dtype}, and {WEIGHTS} belong there")
        # Compared with what it repeats where arrays are read.
        elif name in table.copies:
            continue
        elif why:
            ignored.setdefault(why, []).append(name)
        else:
            wrong.append(f"{name}: {spec.shape} is unexpected")
            more.append(name)
    unread = {
        name: f"is {kind}, and {WEIGHTS} belong there" for name, kind in (others or {}).items()
    }
    wrong += [f"{x}: {unread.get(x, 'missing')}" for x in expected if x not in specs]
    wrong += [f"{name}: of ours, has nothing there" for name in list_unmapped(table, shapes)]
    wrong += [f"{name}: of ours, is there twice" for name in list_repeated(table)]
    if wrong:
        hint = suggest_ignore(more, expected) if len(more) == len(wrong) else ""
        said = "these weights are not what their configuration says:"
        raise UserError(said + _join_lines(wrong) + hint)
    copies = {copy: name for copy, name in table.copies.items() if copy in specs}
    absent = {name: why for name, why in table.absent.items() if name in shapes}
    return Reconciliation(table.by_ours(), copies, ignored, absent)


def suggest_ignore(names: Sequence[str], expected: Collection[str]) -> str:
    """Returns a line on how to leave arrays out, as those of a task's head."""
    first = dict.fromkeys(name.partition(".")[0] for name in names)
    # By their first part, "classifier", unless what is read begins so, too.
    parts = [x for x in first if not any(name.startswith(x) for name in expected)]
    rest = [re.escape(name) for name in names if name.partition(".")[0] not in parts]
    pattern = "|".join([*(f"{re.escape(x)}.*" for x in parts), *rest])
    return (
        f"\nIf they are the head of a fine-tuned model, --ignore='{pattern:.200}' leaves them out"
    )


def list_unmapped(table: Table, shapes: Shapes) -> list[str]:
    """Lists parameters that the release covers only partly and that are not declared absent."""
    parts = table.by_ours()

    def covered(name: str, shape: tuple[int, ...]) -> bool:
        # Each place once: what is there twice is for `list_repeated` to say.
        places = {link.at for link in parts.get(name, [])}
        return sum(math.prod(shape[len(at) :]) for at in places) == math.prod(shape)

    rest = {name: shape for name, shape in shapes.items() if name not in table.absent}
    return [name for name, shape in rest.items() if not covered(name, shape)]


def list_repeated(table: Table) -> list[str]:
    parts = table.by_ours()
    return [name for name in parts if len({x.at for x in parts[name]}) < len(parts[name])]


def _join_lines(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - MOST} more"] if len(lines) > MOST else []
    return "".join(f"\n  {line}" for line in [*lines[:MOST], *more])
