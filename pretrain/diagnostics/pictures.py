"""Draws the curves of studies, one picture a study."""

import pathlib
from collections.abc import Sequence

import numpy as np

from pretrain.diagnostics.measurements import Row

XLABELS = {"deep": "layer", "exploding": "step", "adding": "step"}
YLABELS = {"exploding": "squared error", "adding": "squared error"}


def draw_study(rows: Sequence[Row], path: pathlib.Path) -> None:
    """Draws the curves of one study's rows into a PNG, on a logarithmic scale."""
    import matplotlib  # slow, and few need it

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    study = rows[0].study
    is_sweep = study == "sweep"
    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    if is_sweep:  # the slopes beside their bounds say more than twenty curves
        for cell in dict.fromkeys(row.label.rpartition(" ")[0] for row in rows):
            of_cell = [row.numbers for row in rows if row.label.startswith(f"{cell} ")]
            axes.plot(
                [x["ln radius"] for x in of_cell], [x["slope"] for x in of_cell], "o-", label=cell
            )
        axes.axline((0, 0), slope=1, color="gray", ls="--", label="linear cell")
        axes.set(xlabel="ln spectral radius", ylabel="slope of ln |dL/dx| per step")
    else:
        for row in rows:
            axes.plot(np.arange(1, 1 + len(row.curve)), row.curve, label=row.label)
        axes.set(yscale="log", xlabel=XLABELS.get(study, "T - t"))
        axes.set(ylabel=YLABELS.get(study, "mean norm of the gradient"))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small", ncols=2 if len(rows) > 12 else 1)
    figure.savefig(path, dpi=120)
    plt.close(figure)
