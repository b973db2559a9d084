"""Names the arrays and the fields of config.json that BERT shares with the systems after it."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pretrain.conversion import config_fields as fields
from pretrain.conversion.name_map import Rows, Shapes
from pretrain.conversion.systems import ReleaseSpec, Source
from pretrain.inference.run import Run
from pretrain.runtime.errors import UserError

DEFAULTS = dict(  # of what a file does not say
    # The epsilon of tf.contrib.layers.layer_norm, which no field of Google's file says.
    layer_norm_eps=1e-12,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    initializer_range=0.02,
)
ONLY = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}

# The head of BERT's successors has the exact form, whatever the layers have.
EXACT_HEAD = dict(transform=True, bias=True, activation="gelu_erf")

LAYERS = "backbone/layers/"
ATTENTION = {
    f"{LAYERS}attention/{kind}{name[0]}_{axes}": ("attention/self/" + name + end, axes)
    for name in ("query", "key", "value")
    for kind, end, axes in (("w", "/kernel", "DHK"), ("b", "/bias", "HK"))
}
POOLER = ("backbone/pool_DD", "backbone/pool_bias_D")
FORMS = {"DHK": "D(HK)", "HK": "(HK)"}


def norm(ours: str, theirs: str) -> dict[str, tuple[str, str]]:
    scope = f"{theirs}/LayerNorm"
    return {f"{ours}/scale_D": (f"{scope}/gamma", "D"), f"{ours}/bias_D": (f"{scope}/beta", "D")}


def dense(ours: tuple[str, str], theirs: str, form: str = "") -> dict[str, tuple[str, str]]:
    weight, bias = ours
    form = form or weight.rpartition("_")[2]
    return {weight: (f"{theirs}/kernel", form), bias: (f"{theirs}/bias", bias.rpartition("_")[2])}


LAYER = "bert/encoder/layer_{n}/"
TENSORFLOW: Rows = {
    "backbone/token_VD": ("bert/embeddings/word_embeddings", "VD"),
    "backbone/position_LD": ("bert/embeddings/position_embeddings", "LD"),
    "backbone/segment_SD": ("bert/embeddings/token_type_embeddings", "SD"),
    **norm("backbone/embedding_norm", "bert/embeddings"),
    **{ours: (LAYER + theirs, FORMS[axes]) for ours, (theirs, axes) in ATTENTION.items()},
    **dense(
        (f"{LAYERS}attention/wo_HKD", f"{LAYERS}attention/bo_D"),
        f"{LAYER}attention/output/dense",
        "(HK)D",
    ),
    **norm(f"{LAYERS}attention_norm", f"{LAYER}attention/output"),
    **dense((f"{LAYERS}ffn/wi_DF", f"{LAYERS}ffn/bi_F"), f"{LAYER}intermediate/dense"),
    **dense((f"{LAYERS}ffn/wo_FD", f"{LAYERS}ffn/bo_D"), f"{LAYER}output/dense"),
    **norm(f"{LAYERS}ffn_norm", f"{LAYER}output"),
    **dense(("backbone/pool_DD", "backbone/pool_bias_D"), "bert/pooler/dense", "IO -> IO"),
    **dense(
        ("head/transform_DD", "head/transform_bias_D"),
        "cls/predictions/transform/dense",
        "IO -> IO",
    ),
    **norm("head/transform_norm", "cls/predictions/transform"),
    "head/bias_V": ("cls/predictions/output_bias", "V"),
    "next_DC": ("cls/seq_relationship/output_weights", "CD"),
    "next_bias_C": ("cls/seq_relationship/output_bias", "C"),
}


def spell_torch_name(name: str, gamma: bool) -> str:
    """Google's name as Hugging Face has it; `gamma`: as its older files have it."""
    if name.startswith("cls/"):
        name = name.replace("predictions/output_bias", "predictions/bias")
        name = name.replace("output_weights", "weight").replace("output_bias", "bias")
    norms = {} if gamma else {r"/gamma$": "/weight", r"/beta$": "/bias"}
    for theirs, other in {"layer_": "layer/", r"/kernel$": "/weight", **norms}.items():
        name = re.sub(theirs, other, name)
    return (f"{name}/weight" if name.endswith("_embeddings") else name).replace("/", ".")


def turn_torch_form(name: str, form: str) -> str:
    """Swaps the axes of a dense layer's weight in a form: [out, in] in PyTorch."""
    if not name.endswith("/kernel"):
        return form
    theirs, arrow, ours = form.partition(" -> ")
    first, second = re.findall(r"\(\w+\)|\w", theirs)
    return second + first + arrow + ours


def list_torch_rows(prefix: str = "", gamma: bool = False) -> dict[str, tuple[str, str]]:
    """Lists the rows of Hugging Face's arrays.

    Args:
        prefix: that their names lack.
        gamma: see `spell_torch_name`.
    """
    return {
        ours: (spell_torch_name(theirs, gamma).removeprefix(prefix), turn_torch_form(theirs, form))
        for ours, (theirs, form) in TENSORFLOW.items()
    }


def find_absent_prefix(prefix: str, shapes: Shapes, names: Iterable[str]) -> str:
    """Returns what the names of a release lack: the prefix of a model without heads, else "".

    Args:
        prefix: of the backbone's arrays in a model with a head, as "bert.".
        shapes: our parameters.
        names: those of a release that was found; without any, it is one that we write.
    """
    names = list(names)
    if names:
        has_prefix = any(name.startswith(prefix) for name in names)
    else:
        has_prefix = any(not name.startswith("backbone/") for name in shapes)
    return "" if has_prefix else prefix


def read_model(
    config: Mapping[str, Any], source: Source, where: Path, activations: dict[str, str]
) -> dict[str, Any]:
    """Reads the section `model` of a configuration that has BERT's names.

    Raises:
        UserError: it computes what we do not.
    """
    fields.require_equal(config, ONLY, where)
    D = fields.read_size(config, "hidden_size", where)
    H = fields.read_size(config, "num_attention_heads", where)
    if D % H:
        raise UserError(f"{where}: hidden_size={D} does not divide by num_attention_heads={H}")
    return dict(
        name="transformer",
        V=fields.read_size(config, "vocab_size", where),
        D=D,
        H=H,
        K=D // H,
        N=fields.read_layers(config, "num_hidden_layers", source, where),
        F=fields.read_size(config, "intermediate_size", where),
        L=fields.read_size(config, "max_position_embeddings", where),
        attention="bi",
        norm="post",
        S=fields.read_size(config, "type_vocab_size", where),
        normed_embedding=True,
        activation=fields.map_value(config, "hidden_act", activations, where),
        epsilon=fields.read_nonnegative(config, "layer_norm_eps", where),
        dropout=fields.read_rate(config, "hidden_dropout_prob", where),
        attention_dropout=fields.read_rate(config, "attention_probs_dropout_prob", where),
        # As Google's code, which draws again beyond two deviations.
        initializer="truncated",
        init_scale=fields.read_nonnegative(config, "initializer_range", where),
    )


def build_spec(
    model: dict[str, Any],
    text_format: str,
    tokens: Any,
    has: Mapping[str, bool],
    head: Mapping[str, Any],
    notes: Iterable[str],
) -> ReleaseSpec:
    """Builds the spec of a masked LM without next sentences.

    Args:
        has: if the release has its "head", and which other parts it has.
        head: the section `head` where it has one.
    """
    return ReleaseSpec(
        model,
        dict(name="mlm", nsp=False),
        text_format,
        dict(name="windows", B=32, L=model["L"], framed=True),
        tokens,
        missing=tuple(part for part, is_there in has.items() if not is_there),
        notes=tuple(notes),
        head=dict(head) if has["head"] else {},
    )


def require_exact_head(run: Run, required: dict[str, Any]) -> Any:
    """Returns the backbone of a run whose head, if it has one, is `EXACT_HEAD`.

    Raises:
        UserError: it has another, or fields other than `required`.
    """
    head: dict[str, Any] = dict(tied=True, bias=run.head.transform)
    head |= dict(activation=EXACT_HEAD["activation"]) if run.head.transform else {}
    return fields.require_parts(run, required, head)


def build_config(ours: Any, run: Run, activations: dict[str, str]) -> dict[str, Any]:
    """Builds what `read_model` reads, but for the norms' epsilon."""
    return dict(
        hidden_act=fields.export_activation(ours, activations, run.workdir),
        attention_probs_dropout_prob=ours.attention_dropout,
        hidden_dropout_prob=ours.dropout,
        hidden_size=ours.D,
        initializer_range=ours.init_scale,
        intermediate_size=ours.F,
        max_position_embeddings=ours.L,
        num_attention_heads=ours.H,
        num_hidden_layers=ours.N,
        type_vocab_size=ours.S,
        vocab_size=ours.V,
    )
