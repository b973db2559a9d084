"""Measurements of a study: a line of its table, a line of JSON, a curve of its picture."""

from typing import NamedTuple

import numpy as np

from pretrain.training.reports.metrics_file import to_json

FLOOR = 1e-250  # below it float64 soon underflows


class Decay(NamedTuple):
    """Gradients by distance, and the recurrent weights they came through.

    Attributes:
        norm_T: mean norm of dL_T/dx_t at T - t = 1, 2 ...
        sigma, radius: the largest singular value and the spectral radius of the recurrent weights.
    """

    norm_T: np.ndarray
    sigma: float = float("nan")
    radius: float = float("nan")

    @property
    def slope(self) -> float:
        """Returns the slope of ln norm by distance, see `fit_slope`."""
        return fit_slope(self.norm_T)


def fit_slope(norm_T: np.ndarray) -> float:
    """Fits a line to ln norm by distance, in nats per step; nan of fewer than two points."""
    norm_T = np.asarray(norm_T)
    used_T = np.isfinite(norm_T) & (norm_T > FLOOR)
    distance_T = np.arange(1, 1 + len(norm_T))[used_T]
    if len(distance_T) < 2:
        return float("nan")
    return float(np.polyfit(distance_T, np.log(norm_T[used_T]), 1)[0])


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


def make_decay_row(study: str, label: str, decay: Decay) -> Row:
    """Makes the row of gradients by distance, with what is known of the weights."""
    numbers = {"slope": decay.slope, "first": decay.norm_T[0], "last": decay.norm_T[-1]}
    if np.isfinite(decay.sigma):
        numbers |= {"ln sigma": np.log(decay.sigma), "ln radius": np.log(decay.radius)}
    return Row(study, label, numbers, decay.norm_T)


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
