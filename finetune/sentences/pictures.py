"""Draws the judgements of several runs side by side."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np


def draw_judgements(judgements: Mapping[str, Mapping[str, Any]], path: pathlib.Path) -> None:
    """Draws what `judgement.judge` returned of each run into one PNG.

    Four panels: the correlation without the commonest tokens, the shares of the singular values,
    the cosines of the scored pairs, and alignment beside uniformity.
    """
    import matplotlib  # slow, and few need it

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, grid = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    (curve, shares), (cosines, plane) = grid
    for name, x in judgements.items():
        counts = [int(k) for k in x["without commonest"]]
        curve.plot(counts, list(x["without commonest"].values()), "o-", label=name)
        shares.plot(np.arange(1, 1 + len(x["singular shares"])), x["singular shares"], "o-")
        values = np.concatenate(list(x["cosines"].values()))
        cosines.hist(values, bins=50, range=(-1, 1), density=True, histtype="step")
        aligned = np.nan if x["alignment"] is None else x["alignment"]
        plane.plot(x["uniformity"], aligned, "o", markersize=9)
    curve.set(xlabel="commonest tokens left out", ylabel="Spearman x 100, all pairs")
    shares.set(yscale="log", xlabel="direction", ylabel="share of the squared singular values")
    cosines.set(xlabel="cosine of a scored pair", ylabel="density")
    plane.set(xlabel="uniformity", ylabel="alignment (0 is best)")
    curve.legend(fontsize="small")
    for axes in grid.flat:
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)
