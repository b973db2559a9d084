"""ELMo's weights under the originals' names, as our backbone arranges them."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from pretrain.checkpoint import named_leaves
from pretrain.conversion.systems import elmo
from tests.support import array_mapping as cases

FOLDER = pathlib.Path(__file__).parents[1] / "fixtures" / "elmo"
HEAD = dict(tied=False, bias=True)
CASES = ("char_skip", "char_noskip", "token_skip")


def fields(options: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The backbone's fields that an original's options.json stands for."""
    known = elmo.DEFAULTS | dict(elmo.flatten(options))
    return elmo.read_fields(known, pathlib.Path("options.json"), softmax=kind == "tensorflow")


def ours(theirs: Mapping[str, np.ndarray], kind: str, made: Mapping[str, Any]):
    """The backbone's and the head's parameters in one tree, of variables by their names."""
    shapes = cases.shapes({"name": "elmo", **made}, HEAD)
    parts = named_leaves.nest(cases.read(elmo.build_table(kind, shapes), shapes, theirs))
    return parts["backbone"] | parts.get("head", {})


def published(folder: pathlib.Path):
    """(fields, parameters) of a folder with options.json and lm_weights.hdf5."""
    made = fields(json.loads((folder / "options.json").read_text()), "hdf5")
    return made, ours(arrays(folder / "lm_weights.hdf5"), "hdf5", made)


def arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """All datasets of an HDF5 file."""
    named: dict[str, np.ndarray] = {}

    def take(name, item):
        if isinstance(item, h5py.Dataset):
            named[name] = item[...]

    with h5py.File(path) as file:
        file.visititems(take)
    return named


def characters(sentence: list[str], W: int) -> np.ndarray:
    """`<S>`, the words and `</S>` as the originals spell them: [L, W]."""
    spelled = [[256], *(list(word.encode())[: W - 2] for word in sentence), [257]]
    return np.array([[258, *ids, 259] + [260] * (W - 2 - len(ids)) for ids in spelled])


def raw(name: str) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """The options, and the arrays by group and name: "w" are the weights."""
    with np.load(FOLDER / f"{name}.npz") as file:
        groups: dict[str, dict[str, np.ndarray]] = {}
        options = json.loads(str(file["options"]))
        for key in file.files:
            group, _, rest = key.partition("/")
            groups.setdefault(group, {})[rest] = file[key]
    return options, groups


def load(name: str):
    """(fields, parameters, batches): of each batch what went in and what came out."""
    options, groups = raw(name)
    made = fields(options, "tensorflow")
    batches = [
        _batch(made, options["unroll_steps"], groups[f"in{i}"], groups[f"out{i}"]) for i in range(2)
    ]
    return made, ours(groups["w"], "tensorflow", made), batches


def _batch(made, unroll: int, given, golden):
    kind = "tokens_characters" if made["inputs"] == "characters" else "token_ids"
    both = {"tokens": kind, "next": "next_token_id"}
    arrays = {k: np.stack([given[name], given[f"{name}_reverse"]], 1) for k, name in both.items()}
    # The original's gradients are of the loss times the length of its unrolled graph.
    prefix = "grad_x_unroll/"
    scaled = {k.removeprefix(prefix): x / unroll for k, x in golden.items() if prefix in k}
    arrays["slopes"] = ours(scaled, "tensorflow", made)
    arrays["losses"] = np.stack([golden[f"individual_loss_{z}"] for z in range(2)])
    arrays["loss"] = golden["total_loss"]
    for leaf in ("c_BZU", "h_BZD"):
        last = [[golden[f"final_{z}_{n}_{leaf[0]}"] for z in range(2)] for n in range(made["N"])]
        arrays[leaf] = np.moveaxis(np.array(last), 1, 2)
    return arrays
