"""What the released AWD-LSTM computes, in our arrangement, with the masks that it drew.

The fixture is of salesforce/awd-lstm-lm's model in float64: two windows, the state carried.
"""

import contextlib
import pathlib
from collections.abc import Iterator
from unittest import mock

import numpy as np

import modules
from modules.layers import dropout
from modules.layers.rnn import State

PATH = pathlib.Path(__file__).parents[1] / "fixtures" / "awd_lstm" / "train.npz"
SIZES = dict(V=23, D=6, U=9, N=3)
RATES = dict(dropoute=0.2, dropouti=0.5, dropouth=0.3, wdrop=0.5)
OUTPUT_DROPOUT = 0.4
TORCH_GATES = [0, 2, 1, 3]  # input, candidate, forget, output


def backbone(**fields):
    return modules.build("awd_lstm", **SIZES | RATES | fields)


def read() -> dict[str, np.ndarray]:
    """All arrays of the fixture."""
    with np.load(PATH) as file:
        return {name: file[name] for name in file.files}


def arrange_weights(arrays, group: str):
    """(the backbone's parameters, the head's) of a group as "w" or "g0"."""
    params = {"token_VD": arrays[f"{group}/encoder.weight"]}
    for n in range(SIZES["N"]):
        get = lambda name, n=n: arrays[f"{group}/rnns.{n}.module.{name}_l0"]  # noqa: E731
        params[f"layer_{n}"] = {
            "wx_ZDGU": _arrange_matrix(get("weight_ih")),
            "wh_ZDGU": _arrange_matrix(get("weight_hh")),
            "b_ZGU": _arrange_gates(get("bias_ih"))[None],
            "bh_ZGU": _arrange_gates(get("bias_hh"))[None],
        }
    return params, {"bias_V": arrays[f"{group}/decoder.bias"]}


def arrange_states(arrays, window: int) -> tuple[State, ...]:
    """The states of all layers behind a window."""
    pairs = (
        [np.moveaxis(arrays[f"{name}{window}_{n}"], 0, 1) for name in "hc"]
        for n in range(SIZES["N"])
    )
    return tuple(State(*pair) for pair in pairs)


def _arrange_gates(rows):
    """[4U, ...] to [4, U, ...] in the order of our gates."""
    return rows.reshape(4, -1, *rows.shape[1:])[TORCH_GATES]


def _arrange_matrix(w):
    return np.moveaxis(_arrange_gates(w), -1, 0)[None]


@contextlib.contextmanager
def recorded_masks(arrays, window: int) -> Iterator[None]:
    """Every dropout that is traced inside takes the next mask of the original's."""
    masks = {name.partition("/")[2]: x for name, x in arrays.items() if f"mask{window}/" in name}
    order = [masks["emb0"][:, 0]]
    for n in range(SIZES["N"]):
        order += [np.swapaxes(masks[f"locked{n}"], 0, 1), _arrange_matrix(masks[f"wdrop{n}"])]
    order.append(np.swapaxes(masks[f"locked{SIZES['N']}"], 0, 1))

    def take(rate, x, *_):
        mask = order.pop(0)
        assert x.shape == mask.shape
        assert mask.max() == 1 / (1 - rate)
        return x * mask.astype(x.dtype)

    with mock.patch.object(dropout, "apply_dropout", take):
        yield
