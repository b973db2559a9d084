"""Measurements of a study: a line of its table, a line of JSON, a curve of its picture."""

from typing import NamedTuple

import numpy as np

from pretrain.training.logging import to_json


class Row(NamedTuple):
    """One measurement.

    Attributes:
        study: whose it is; a picture shows one study.
        label: what was measured.
        numbers: for the table, by name.
        curve: by distance, layer or step.
    """

    study: str
    label: str
    numbers: dict[str, float]
    curve: np.ndarray


def format_row(row: Row, *, is_first: bool) -> str:
    """Formats a row of the table, under a heading where it is a study's first."""
    heading = f"{row.study:<34}" + "".join(f"{name:>12}" for name in row.numbers)
    values = "".join(f"{value:>12.4g}" for value in row.numbers.values())
    return f"{heading}\n{row.label:<34}{values}" if is_first else f"{row.label:<34}{values}"


def to_line(row: Row) -> dict:
    """Turns a row into what JSON can say."""
    numbers = {name: to_json(float(value)) for name, value in row.numbers.items()}
    curve = [to_json(float(value)) for value in row.curve]
    return {"study": row.study, "label": row.label, **numbers, "curve": curve}
