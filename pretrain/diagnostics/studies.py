"""The studies of a recipe: each turns a section into rows of numbers and curves to draw."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pretrain.diagnostics import adding_problem, deep_stack
from pretrain.diagnostics.gradient_decay import measure_cell
from pretrain.diagnostics.measurements import Row, make_decay_row


def study_decay(config) -> Iterator[Row]:
    """Yields each cell's gradients by distance at initialization."""
    for label, cell in config.cells.items():
        decay = measure_cell(cell, seed=config.seed, **config.decay)
        yield make_decay_row("decay", label, decay)


def study_sweep(config) -> Iterator[Row]:
    """Yields plain RNNs' gradients by distance, for kinds and spectral radii of their weights.

    Keys:
        kinds, radii: of the recurrent weights, see `recurrent_weights.set_recurrent_weights`.
    """
    plain = {label: cell for label, cell in config.cells.items() if cell.cell == "rnn"}
    sweep = itertools.product(plain.items(), config.sweep.kinds, config.sweep.radii)
    for (label, cell), kind, radius in sweep:
        where: Mapping[str, Any] = dict(kind=kind, radius=radius, **config.decay)
        decay = measure_cell(cell, seed=config.seed, **where)
        yield make_decay_row("sweep", f"{label} {kind} {radius:g}", decay)


def study_deep(config) -> Iterator[Row]:
    """Yields the gradients of a deep stack's layers, for all ways to build it.

    Keys:
        activations, inits: of `deep_stack.ACTIVATIONS` and `deep_stack.INITIALIZERS`.
    """
    sizes = config.deep.to_dict()
    ways = itertools.product(sizes.pop("activations"), sizes.pop("inits"), *[(False, True)] * 2)
    for activation, init, residual, norm in ways:
        norm_N = deep_stack.measure_layers(
            activation, init, residual=residual, norm=norm, seed=config.seed, **sizes
        )
        label = f"{activation} {init}{' residual' * residual}{' norm' * norm}"
        numbers = {"lowest": norm_N[0], "top": norm_N[-1], "ratio": _compare_lowest(norm_N)}
        yield Row("deep", label, numbers, norm_N)


def study_exploding(config) -> Iterator[Row]:
    """Yields loss curves of the adding problem from a large spectral radius, for each clipping.

    Keys:
        clips: limits of the gradient's norm; 0: none.
    """
    section = config.exploding.to_dict()
    clips, optim, cell = (section.pop(name) for name in ("clips", "optim", "cell"))
    for clip in clips:
        curves = adding_problem.train(cell, optim | {"clip": clip}, seed=config.seed, **section)
        loss, norm = curves["loss"], curves["grad_norm"]
        numbers = {"worst": np.max(loss), "last": _average_tail(loss), "grad_norm": np.max(norm)}
        yield Row("exploding", f"clip {clip:g}" if clip else "not clipped", numbers, loss)


def study_adding(config) -> Iterator[Row]:
    """Yields each cell's loss curve of the adding problem, the mean over seeds.

    Keys:
        seeds: how many runs the mean is of.
    """
    section = config.adding.to_dict()
    seeds, optim = section.pop("seeds"), section.pop("optim")
    for label, cell in config.cells.items():
        runs = [
            adding_problem.train(cell, optim, seed=config.seed + seed, **section)
            for seed in range(seeds)
        ]
        errors = np.array([run["test_loss"] for run in runs])
        numbers = {"mse": errors.mean(), "deviation": errors.std(), "worst": errors.max()}
        yield Row("adding", label, numbers, np.mean([run["loss"] for run in runs], 0))


STUDIES = {
    "decay": study_decay,
    "sweep": study_sweep,
    "deep": study_deep,
    "exploding": study_exploding,
    "adding": study_adding,
}


def _average_tail(loss: np.ndarray) -> float:
    return loss[-max(1, len(loss) // 10) :].mean()


def _compare_lowest(norm_N: np.ndarray) -> float:
    return norm_N[0] / max(norm_N[-1], 1e-30)
