"""ELMo's weights under the originals' names, as our backbone arranges them."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

FOLDER = pathlib.Path(__file__).parent / "fixtures" / "elmo"
CASES = ("char_skip", "char_noskip", "token_skip")

# A cell's variables in the training checkpoints and in the published HDF5 files.
CELLS = {
    "RNN_{z}/rnn/multi_rnn_cell/cell_{n}/lstm_cell/": ("kernel", "bias", "projection/kernel"),
    "RNN_{z}/RNN/MultiRNNCell/Cell{n}/LSTMCell/": ("W_0", "B", "W_P_0"),
}
WORDS = {"token_VD": "embedding", "softmax_VD": "softmax/W", "bias_V": "softmax/b"}
PROJECTION = {"projection_XD": "CNN_proj/W_proj", "projection_D": "CNN_proj/b_proj"}
HIGHWAYS = {
    "carry_XX": "W_carry", "carry_X": "b_carry",
    "transform_XX": "W_transform", "transform_X": "b_transform",
}  # fmt: skip


def fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The backbone's fields that an original's options.json stands for."""
    lstm, characters = options["lstm"], options.get("char_cnn")
    made = dict(
        V=options.get("n_tokens_vocab", 0), D=lstm["projection_dim"], U=lstm["dim"],
        N=lstm["n_layers"], Z=1 + options.get("bidirectional", True),
        residual=lstm["use_skip_connections"], clip_cell=float(lstm["cell_clip"]),
        clip_projection=float(lstm["proj_clip"]), dropout=options.get("dropout", 0.0),
        tied=options.get("share_embedding_softmax", False),
        inputs="characters" if characters else "words",
    )  # fmt: skip
    if characters:
        made |= dict(
            E=characters["embedding"]["dim"], highways=characters["n_highway"],
            filters=tuple(map(tuple, characters["filters"])),
            activation=characters["activation"], W=characters["max_characters_per_token"],
        )  # fmt: skip
    return made


def ours(theirs: Mapping[str, np.ndarray], *, Z: int, N: int, D: int, filters=(), **_: Any):
    """The backbone's parameters, of variables by their names without a leading "lm/"."""
    tree: dict[str, Any] = {name: theirs[x] for name, x in WORDS.items() if x in theirs}
    if "char_embed" in theirs:
        tree["characters"] = _characters(theirs, filters)
    scope = next(scope for scope in CELLS if scope.format(z=0, n=0) + CELLS[scope][0] in theirs)
    cells = [[_cell(theirs, scope, z, n, D) for z in range(Z)] for n in range(N)]
    names = cells[0][0]
    stacks = {name: np.stack([[each[name] for each in row] for row in cells]) for name in names}
    tree["layers"] = {
        f"{name[:2].strip('_')}_Z{name.split('_')[1]}": x for name, x in stacks.items()
    }
    return tree


def _cell(theirs, scope: str, z: int, n: int, D: int):
    """One cell's: the rows of its kernel are the input's, then the state's."""
    kernel, bias, projection = (theirs[scope.format(z=z, n=n) + name] for name in CELLS[scope])
    wx, wh = np.split(kernel.reshape(len(kernel), 4, -1), [len(kernel) - D])
    return {"wx_DGU": wx, "wh_DGU": wh, "b_GU": bias.reshape(4, -1), "wp_UD": projection}


def _characters(theirs, filters):
    made = {"character_E": theirs["char_embed"]}
    for i, (w, _) in enumerate(filters):
        made[f"kernel{w}_EX"] = theirs[f"CNN/W_cnn_{i}"][0]
        made[f"bias{w}_X"] = theirs[f"CNN/b_cnn_{i}"]
    many = sum(name.endswith("W_carry") for name in theirs)
    for name, x in HIGHWAYS.items() if many else ():
        made[name] = np.stack([theirs[f"CNN_high_{i}/{x}"] for i in range(many)])
    return made | {name: theirs[x] for name, x in PROJECTION.items() if x in theirs}


def published(folder: pathlib.Path):
    """(fields, parameters) of a folder with options.json and lm_weights.hdf5."""
    made = fields(json.loads((folder / "options.json").read_text()))
    named: dict[str, np.ndarray] = {}

    def take(name, item):
        if isinstance(item, h5py.Dataset):
            named[name] = item[...]

    with h5py.File(folder / "lm_weights.hdf5") as file:
        file.visititems(take)
    return made, ours(named, **made)


def characters(sentence: list[str], W: int) -> np.ndarray:
    """`<S>`, the words and `</S>` as the originals spell them: [L, W]."""
    spelled = [[256], *(list(word.encode())[: W - 2] for word in sentence), [257]]
    return np.array([[258, *ids, 259] + [260] * (W - 2 - len(ids)) for ids in spelled])


def load(name: str):
    """(fields, parameters, batches): of each batch what went in and what came out."""
    with np.load(FOLDER / f"{name}.npz") as file:
        groups: dict[str, dict[str, np.ndarray]] = {}
        options = json.loads(str(file["options"]))
        for key in file.files:
            group, _, rest = key.partition("/")
            groups.setdefault(group, {})[rest] = file[key]
    made = fields(options)
    batches = [
        _batch(made, options["unroll_steps"], groups[f"in{i}"], groups[f"out{i}"]) for i in range(2)
    ]
    return made, ours(_bare(groups["w"]), **made), batches


def _bare(named, prefix: str = "lm/"):
    return {k.removeprefix(prefix): x for k, x in named.items() if k.startswith(prefix)}


def _batch(made, unroll: int, given, golden):
    kind = "tokens_characters" if made["inputs"] == "characters" else "token_ids"
    both = {"tokens": kind, "next": "next_token_id"}
    arrays = {k: np.stack([given[name], given[f"{name}_reverse"]], 1) for k, name in both.items()}
    # The original's gradients are of the loss times the length of its unrolled graph.
    scaled = {k: x / unroll for k, x in _bare(golden, "grad_x_unroll/lm/").items()}
    arrays["slopes"] = ours(scaled, **made)
    arrays["losses"] = np.stack([golden[f"individual_loss_{z}"] for z in range(2)])
    arrays["loss"] = golden["total_loss"]
    for leaf in ("c_NBZU", "h_NBZD"):
        last = [[golden[f"final_{z}_{n}_{leaf[0]}"] for z in range(2)] for n in range(made["N"])]
        arrays[leaf] = np.moveaxis(np.array(last), 1, 2)
    return arrays
