"""Makes a release a folder that sentence-transformers loads, and that gives the same vectors.

Reimers & Gurevych 2019 (arXiv 1908.10084).  Hugging Face's files stand in the folder itself, and
each step behind them in a folder of its own, in the order of modules.json:

    first, last, mean    Pooling
    pooler               Pooling of the first state, and Dense: BERT's pooler
    last_two, first_last WeightedLayerPooling of all layers, and Pooling by the mean
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pretrain.formats import Spec, safetensors
from pretrain.inference.layer_selection import check_pooler, parse_pool
from pretrain.inference.run import Run
from pretrain.inference.text_format import format_name, load_format
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import update_json, write_json

PACKAGE = "sentence_transformers.models"  # as releases spell it since the first
MODES = {"mean": "mean_tokens", "first": "cls_token", "last": "lasttoken"}
EVERY_MODE = (*MODES.values(), "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens")


class SentenceForm(NamedTuple):
    """Says how a release makes a vector of a sentence: see `layer_selection.SENTENCE_POOLS`."""

    pool: str
    normalize: bool = False


class Step(NamedTuple):
    """Holds a step behind the network: its class, its configuration, and its arrays."""

    kind: str
    config: dict[str, Any]
    arrays: dict[str, np.ndarray]


def check_form(run: Run, form: SentenceForm, model_type: str) -> None:
    """Refuses a pooling that sentence-transformers would compute otherwise.

    Args:
        model_type: of the release's config.json; "": it has none.

    Raises:
        UserError: it would, or the release is of another kind.
    """
    if not model_type:
        raise UserError(f"--pool={form.pool}: sentence-transformers loads --kind=hugging_face")
    padding = load_format(format_name(run.config)).padding
    if padding == "left" and form.pool in ("first", "pooler"):
        # There the first position of a short row is padding.
        raise UserError(
            f"--pool={form.pool}: sentence-transformers takes a row's first position, and this "
            "system pads rows in front: take mean or last"
        )
    check_pooler(run.backbone, form.pool)
    parse_pool(form.pool, count=run.backbone.N + 1)  # a model of too few layers


def write_steps(run: Run, folder: Path, form: SentenceForm, pooler: Any = None) -> None:
    """Writes all that sentence-transformers reads beside Hugging Face's files.

    Args:
        folder: with these files.
        pooler: weight [D, D] and bias [D] of the backbone's pooler, where it is the pooling.
    """
    steps = list(list_steps(run, form, pooler))
    names = ["", *(f"{number}_{step.kind}" for number, step in enumerate(steps, 1))]
    kinds = ["Transformer", *(step.kind for step in steps)]
    modules = [
        dict(idx=i, name=str(i), path=name, type=f"{PACKAGE}.{kind}")
        for i, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]
    write_json(folder / "modules.json", modules)
    longest = getattr(run.backbone, "L", None)  # as many tokens as `pretrain.embed` reads
    write_json(
        folder / "sentence_bert_config.json", dict(max_seq_length=longest, do_lower_case=False)
    )
    write_json(folder / "config_sentence_transformers.json", dict(similarity_fn_name="cosine"))
    if "WeightedLayerPooling" in kinds:
        update_json(folder / "config.json", output_hidden_states=True)
    special, pieces = run.tokenizer.special, run.tokenizer.pieces
    if "pad" not in special:
        # Sentences are padded in batches; what stands there is not seen.
        stand_in = pieces[special.get("eod", special.get("unk", 0))]
        update_json(folder / "tokenizer_config.json", pad_token=stand_in)
    for name, step in zip(names[1:], steps, strict=True):
        (folder / name).mkdir()
        if step.config:
            write_json(folder / name / "config.json", step.config)
        if step.arrays:
            specs = {key: Spec(x.shape, x.dtype) for key, x in step.arrays.items()}
            safetensors.write(folder / name, specs, step.arrays.items())


def list_steps(run: Run, form: SentenceForm, pooler: Any) -> Iterator[Step]:
    """Lists the steps behind the network."""
    D, N = run.backbone.D, run.backbone.N
    choice, kind = parse_pool(form.pool, count=N + 1)
    if choice.weights is not None:
        weights_N = np.zeros(N + 1, np.float32)
        weights_N[list(choice.layers)] = choice.weights
        config = dict(word_embedding_dimension=D, layer_start=0, num_hidden_layers=N)
        yield Step("WeightedLayerPooling", config, {"layer_weights": weights_N})
    mode = MODES["first" if kind == "pooler" else kind]
    modes = {f"pooling_mode_{name}": name == mode for name in EVERY_MODE}
    yield Step("Pooling", {"word_embedding_dimension": D, **modes, "include_prompt": True}, {})
    if kind == "pooler":
        weight_DD, bias_D = pooler
        config = dict(in_features=D, out_features=D, bias=True)
        config |= dict(activation_function="torch.nn.modules.activation.Tanh")
        # PyTorch's axes are [out, in].
        arrays = {"linear.weight": np.ascontiguousarray(weight_DD.T), "linear.bias": bias_D}
        yield Step("Dense", config, arrays)
    if form.normalize:
        yield Step("Normalize", {}, {})
