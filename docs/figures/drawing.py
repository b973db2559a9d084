"""Holds what the pictures share: colours, boxes and arrows of a diagram, and their format."""

import pathlib
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import patches
from matplotlib import pyplot as plt

FOLDER = pathlib.Path(__file__).parent
BLUE, ORANGE, GREEN, RED = "#3b6ea5", "#c97b22", "#4b8b58", "#b0413e"
INK, PALE = "#222222", "#eef2f7"


def save_picture(figure: Any, name: str, folder: pathlib.Path = FOLDER) -> pathlib.Path:
    """Writes a figure as a PNG of few colours; returns its path."""
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=90, facecolor="white", metadata={"Software": None})
    plt.close(figure)
    return path


def start_diagram(width: float, height: float) -> tuple[Any, Any]:
    """Returns a figure without axes, on which one unit is an inch, and its drawing area."""
    figure = plt.figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


def draw_box(
    axes: Any, x: float, y: float, width: float, height: float, title: str, text: str = "", **style
) -> None:
    """Draws a box with a title, and lines of smaller text below it; (x, y) is its lower left.

    Args:
        style: of the patch; `edgecolor` is the colour of the title, too.
    """
    look = dict(facecolor=PALE, edgecolor=BLUE, linewidth=1.4) | style
    round_box = patches.FancyBboxPatch(
        (x, y), width, height, boxstyle="round,pad=0,rounding_size=0.08", **look
    )
    axes.add_patch(round_box)
    middle = x + width / 2
    if not text:
        axes.text(middle, y + height / 2, title, ha="center", va="center", fontsize=11, color=INK)
        return
    top = y + height - 0.14
    axes.text(
        middle,
        top,
        title,
        ha="center",
        va="top",
        fontsize=12,
        weight="bold",
        color=look["edgecolor"],
    )
    axes.text(middle, top - 0.3, text, ha="center", va="top", fontsize=10, color=INK)


def draw_arrow(axes: Any, start: tuple, end: tuple, color: str = INK, **style) -> None:
    """Draws an arrow from one point to another."""
    look = dict(arrowstyle="-|>", mutation_scale=13, color=color, linewidth=1.3) | style
    axes.add_patch(patches.FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, **look))
