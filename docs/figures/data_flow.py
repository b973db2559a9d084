"""Draws the way from text to a training step: data_flow.png.

python -m docs.figures.data_flow
"""

from typing import Any

from docs.figures.drawing import BLUE, GREEN, ORANGE, RED, draw_arrow, draw_box, save_picture
from docs.figures.drawing import start_diagram as start

WIDTH, GAP, HEIGHT = 7.0, 0.42, 1.0
STAGES = [  # title, lines, colour, what goes on to the next
    (
        "source",
        "documents: text files, JSON lines, Parquet,\na Hub or TFDS dataset, local or in a bucket",
        GREEN,
        "once for a text and a tokenizer",
    ),
    (
        "prepared corpus",
        "flat arrays in data/<source>-<hash>/: tokens, ends of documents\n"
        "and sentences, manifest with checksums",
        GREEN,
        "memory-mapped, never copied",
    ),
    (
        "batch layout",
        "rows as a pure function of (seed, step): pairs, windows,\nlanes or both directions",
        BLUE,
        "only this process's rows",
    ),
    (
        "batch",
        "named arrays: tokens_BL, valid_BL ...\nsharded over the mesh by their letters",
        BLUE,
        "",
    ),
]
STEP = [
    (
        "objective",
        "corrupts the batch on the device,\nmakes the mask, sums the loss",
        ORANGE,
    ),
    ("backbone", "states h_BLD under\nthat mask", ORANGE),
    ("head", "logits over the\nvocabulary", ORANGE),
]


def draw_data_flow() -> Any:
    """Draws the stages from top to bottom, and the parts of a step side by side."""
    height = len(STAGES) * (HEIGHT + GAP) + 3.75
    figure, axes = start(WIDTH + 0.4, height)
    y = height - 0.15
    for title, text, color, label in STAGES:
        y -= HEIGHT
        draw_box(axes, 0.2, y, WIDTH, HEIGHT, title, text, edgecolor=color)
        middle = 0.2 + WIDTH / 2
        draw_arrow(axes, (middle, y), (middle, y - GAP))
        axes.text(middle + 0.15, y - GAP / 2, label, va="center", fontsize=9.5, style="italic")
        y -= GAP
    draw_step(axes, y)
    return figure


def draw_step(axes: Any, top: float) -> None:
    """Draws the compiled step, and what happens between steps."""
    bottom = top - 2.2
    draw_box(
        axes, 0.2, bottom, WIDTH, 2.2, " ", " ", facecolor="white", edgecolor=ORANGE, linestyle="--"
    )
    axes.text(0.4, top - 0.12, "a step: one compiled program", va="top", fontsize=11, weight="bold")
    x, widths = 0.4, (2.9, 1.7, 1.5)
    for (title, text, color), width in zip(STEP, widths, strict=True):
        draw_box(axes, x, top - 1.45, width, 1.0, title, text, edgecolor=color)
        if title != "head":
            draw_arrow(axes, (x + width, top - 0.95), (x + width + 0.25, top - 0.95))
        x += width + 0.25
    axes.text(
        0.4,
        bottom + 0.36,
        "gradients, optimizer, metrics as sums: the train state of the next step",
        va="center",
        fontsize=10,
    )
    draw_arrow(axes, (0.2 + WIDTH / 2, bottom), (0.2 + WIDTH / 2, bottom - GAP))
    text = "evaluation, checkpoints, metrics.jsonl, trackers, heartbeats"
    draw_box(
        axes, 0.2, bottom - GAP - 0.85, WIDTH, 0.85, "hooks between steps", text, edgecolor=RED
    )


if __name__ == "__main__":
    print(save_picture(draw_data_flow(), "data_flow"))
