"""Draws the two streams of XLNet over a memory: two_streams.png.

python -m docs.figures.two_streams
"""

from typing import Any

from docs.figures.drawing import BLUE, GREEN, ORANGE, draw_arrow, draw_box, save_picture
from docs.figures.drawing import start_diagram as start

WORDS = ("the", "state", "of", "Union")
MEMORY = ("It", "gives", "me")
TARGET, SEEN = 1, (0, 3)  # "state" is predicted; it sees these words of its window
STEP, SIZE = 0.98, 0.6
LEFT, LEVELS = 1.15, (0.75, 2.55, 4.35)  # x of the first memory; y of the layers


def place(column: int) -> float:
    """Returns the x of a column: memory first, then the window behind a gap."""
    return LEFT + column * STEP + (0.35 if column >= len(MEMORY) else 0)


def draw_state(axes: Any, column: int, y: float, name: str, color: str) -> None:
    """Draws a state as a square."""
    draw_box(axes, place(column) - SIZE / 2, y, SIZE, SIZE * 0.8, name, edgecolor=color)


def draw_level(axes: Any, layer: int) -> None:
    """Draws the states of a layer: memory, content, and the query of the predicted position."""
    y = LEVELS[layer]
    if layer < 2:  # nothing reads the content of the last layer
        for column in range(len(MEMORY)):
            draw_state(axes, column, y, f"$m^{layer}$", GREEN)
        for i in range(len(WORDS)):
            draw_state(axes, len(MEMORY) + i, y, f"$h^{layer}_{i + 1}$", BLUE)
    x = place(len(MEMORY) + len(WORDS)) + 0.4
    draw_box(axes, x - SIZE / 2, y, SIZE, SIZE * 0.8, f"$g^{layer}_2$", edgecolor=ORANGE)
    names = ("words", "layer 1", "layer 2")
    axes.text(0.1, y + SIZE * 0.4, names[layer], va="center", fontsize=11, weight="bold")


def draw_attention(axes: Any, layer: int) -> None:
    """Draws what the query and the content of one position read of the layer below."""
    low, high = LEVELS[layer - 1] + SIZE * 0.8, LEVELS[layer]
    query_x = place(len(MEMORY) + len(WORDS)) + 0.4
    content_x = place(len(MEMORY) + TARGET)
    keys = [*range(len(MEMORY)), *(len(MEMORY) + i for i in SEEN)]
    for column in keys:
        draw_arrow(axes, (place(column), low), (query_x, high), ORANGE, linewidth=1.0)
        if layer < 2:
            draw_arrow(axes, (place(column), low), (content_x, high), BLUE, linewidth=1.0)
    if layer < 2:
        draw_arrow(axes, (content_x, low), (content_x, high), BLUE, linewidth=2.6)
    draw_arrow(axes, (query_x, low), (query_x, high), ORANGE, linestyle=":")


def draw_two_streams() -> Any:
    """Draws two layers over the words of a window and a memory of the last one."""
    figure, axes = start(9.4, 5.95)
    for layer in range(3):
        draw_level(axes, layer)
    for layer in (1, 2):
        draw_attention(axes, layer)
    for column, word in enumerate(MEMORY + WORDS):
        axes.text(place(column), 0.55, word, ha="center", va="top", fontsize=12)
    x = place(len(MEMORY) + len(WORDS)) + 0.4
    axes.text(x, 0.55, "learned vector", ha="center", va="top", fontsize=11)
    top = LEVELS[2] + SIZE * 0.8
    draw_arrow(axes, (x, top), (x, top + 0.4), ORANGE)
    axes.text(x, top + 0.45, 'predicts "state"', ha="center", fontsize=12, color=ORANGE)
    middle = (place(0) + place(len(MEMORY) - 1)) / 2
    axes.text(middle, 0.15, "memory, no gradient", ha="center", fontsize=11, color=GREEN)
    middle = (place(len(MEMORY)) + place(len(MEMORY) + len(WORDS) - 1)) / 2
    axes.text(middle, 0.15, "content stream", ha="center", fontsize=11, color=BLUE)
    axes.text(x, 0.15, "query stream", ha="center", fontsize=11, color=ORANGE)
    return figure


if __name__ == "__main__":
    print(save_picture(draw_two_streams(), "two_streams"))
