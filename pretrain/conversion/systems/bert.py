"""BERT's releases (Devlin et al. 2018): Google's TensorFlow checkpoints, and Hugging Face's."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from modules.backbones.transformer import Backbone
from pretrain.conversion import config_fields as fields
from pretrain.conversion import hugging_face
from pretrain.conversion.name_map import Rows, Shapes, Table, expand_rows
from pretrain.conversion.systems import Kind, ReleaseSpec, Source, bert_tokenizer
from pretrain.conversion.task_heads import Heads, list_row_heads, list_token_heads, own_layer
from pretrain.data.tokenizers import wordpiece
from pretrain.inference.run import Run
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import write_json

KINDS = {
    "tensorflow": Kind("tensorflow", "bert_config.json", "*.index", writable=False),
    "npz": Kind("npz", "bert_config.json", "*.npz"),
    "hugging_face": Kind("safetensors", "config.json", model_type="bert"),
}
TEXT_FORMAT = "bert"
DEFAULTS = dict(  # of what a file does not say
    # What tf.contrib.layers.layer_norm has, and no field of Google's file says.
    layer_norm_eps=1e-12,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    initializer_range=0.02,
)
ONLY = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}

LAYERS = "backbone/layers/"
ATTENTION = {
    f"{LAYERS}attention/{kind}{name[0]}_{axes}": ("attention/self/" + name + end, axes)
    for name in ("query", "key", "value")
    for kind, end, axes in (("w", "/kernel", "DHK"), ("b", "/bias", "HK"))
}
DECODER = "cls.predictions.decoder"  # of Hugging Face's, tied to the embedding and its own bias
PARTS = {  # and whose arrays tell that they are there
    "pooler": ("pooler/dense/kernel", "pooler.dense.weight"),
    "head": ("cls/predictions/output_bias", "cls.predictions.bias"),
    "nsp": ("cls/seq_relationship/output_bias", "cls.seq_relationship.bias"),
}
ARCHITECTURES = {  # of transformers, by whether there is a head of MLM, and one of NSP
    (True, True): "BertForPreTraining",
    (True, False): "BertForMaskedLM",
    (False, True): "BertForNextSentencePrediction",
    (False, False): "BertModel",
}
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
IGNORED = {
    "tensorflow": {
        r".*/(adam_[mv]|Adam(_1)?|AdamWeightDecay\w*)": "slots of the optimiser",
        r"global_step|beta[12]_power": "the optimiser's count",
    },
    "hugging_face": {r"(bert\.)?embeddings\.position_ids": "0, 1, 2, ..."},
}

POOLER = ("backbone/pool_DD", "backbone/pool_bias_D")
HEADS: Heads = {
    **list_row_heads(
        "Bert",
        "classifier",
        # Theirs always has a pooler: a layer of the head's own stands in its place.
        {"pooler": {}, "tanh": own_layer("bert.pooler.dense")},
        pool="first",
        dropout="classifier_dropout",
    ),
    **list_token_heads("Bert", dropout="classifier_dropout", lacks=POOLER),
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


def build_table(kind: str, shapes: Shapes, names: Iterable[str] = ()) -> Table:
    """Builds the table of their arrays and ours.

    Args:
        names: those of a release that was found; a model without heads has no "bert." there.
    """
    if kind != "hugging_face":
        return Table(expand_rows(TENSORFLOW, shapes), {}, IGNORED["tensorflow"])
    # A model without heads is saved without the prefix that the others have.
    has_head = any(not name.startswith("backbone/") for name in shapes)
    names = list(names) or (["bert."] if has_head else [])
    bare = not any(name.startswith("bert.") for name in names)
    # The first conversions to PyTorch kept TensorFlow's names of a norm.
    gamma = any(name.endswith("LayerNorm.gamma") for name in names)

    def spelled(name: str) -> str:
        return spell_torch_name(name, gamma).removeprefix("bert." if bare else "")

    rows = {
        ours: (spelled(theirs), turn_torch_form(theirs, form))
        for ours, (theirs, form) in TENSORFLOW.items()
    }
    token = "backbone/token_VD"
    copies = {f"{DECODER}.bias": rows["head/bias_V"][0], f"{DECODER}.weight": rows[token][0]}
    if f"{DECODER}.weight" in names and rows[token][0] not in names:  # one of the two is enough
        rows[token] = (f"{DECODER}.weight", "VD")
        del copies[f"{DECODER}.weight"]
    copies = copies if "head/bias_V" in shapes else {}
    return Table(expand_rows(rows, shapes), copies, IGNORED["hugging_face"])


def read_release(source: Source) -> ReleaseSpec:
    """Reads what the release is: its parts by its arrays, the rest by its configuration.

    Raises:
        UserError: it has no vocabulary, or computes what we do not.
    """
    theirs = "hugging_face" if source.kind == "hugging_face" else "tensorflow"
    where = source.find_file(KINDS[source.kind].marker_file)
    if theirs == "hugging_face":
        config = DEFAULTS | hugging_face.read_config(source, "bert")
    else:
        config = DEFAULTS | source.read_json(where.name)
    fields.require_equal(config, ONLY, where)
    D = fields.read_size(config, "hidden_size", where)
    H = fields.read_size(config, "num_attention_heads", where)
    if D % H:
        raise UserError(f"{where}: hidden_size={D} does not divide by num_attention_heads={H}")
    has = {part: any(name.endswith(end) for name in source.specs) for part, end in PARTS.items()}
    model = dict(
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
        pooler=has["pooler"],
        activation=fields.map_value(
            config, "hidden_act", hugging_face.ACTIVATIONS_BY_CODE[theirs], where
        ),
        epsilon=fields.read_nonnegative(config, "layer_norm_eps", where),
        dropout=fields.read_rate(config, "hidden_dropout_prob", where),
        attention_dropout=fields.read_rate(config, "attention_probs_dropout_prob", where),
        # As Google's code, which draws again beyond two deviations.
        initializer="truncated",
        init_scale=fields.read_nonnegative(config, "initializer_range", where),
    )
    batches = dict(
        # Without a head of next sentences rows are RoBERTa's, which are no pairs.
        name="pairs" if has["nsp"] else "windows",
        B=32,
        L=model["L"],
        **(dict(next_sentence=True) if has["nsp"] else dict(framed=True)),
    )
    heads = {"next_DC": (D, 2), "next_bias_C": (2,)} if has["nsp"] else {}
    tokens = bert_tokenizer.read_tokenizer(source)
    notes = fields.check_vocabulary(tokens, model["V"], source.folder)
    notes += bert_tokenizer.note_case(source, tokens)
    missing = tuple(part for part, there in has.items() if not there)
    objective = dict(name="mlm", nsp=has["nsp"])
    head = dict(transform=has["head"], bias=has["head"])
    return ReleaseSpec(model, objective, TEXT_FORMAT, batches, tokens, heads, missing, notes, head)


def is_writable(run: Run, kind: str) -> bool:
    return isinstance(run.backbone, Backbone)


def write_config_and_tokenizer(run: Run, folder: Path, kind: str, dtype: str) -> None:
    """Writes the configuration and the vocabulary.

    Raises:
        UserError: the run computes what theirs cannot.
    """
    required = dict(attention="bi", norm="post", normed_embedding=True)
    # Their head has both or none: the transform and a bias are one module.
    ours = fields.require_parts(run, required, dict(tied=True, bias=run.head.transform))
    pieces = fields.require_tokenizer(run, wordpiece.Tokenizer, "WordPiece")
    theirs = "hugging_face" if kind == "hugging_face" else "tensorflow"
    config = dict(
        hidden_act=fields.export_activation(
            ours, hugging_face.ACTIVATIONS_BY_CODE[theirs], run.workdir
        ),
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
    if theirs == "hugging_face":
        config |= dict(
            architectures=[find_architecture(run)],
            model_type="bert",
            layer_norm_eps=ours.epsilon,
            dtype=dtype,
            pad_token_id=pieces.special["pad"],
            position_embedding_type="absolute",
        )
        bert_tokenizer.write_tokenizer(folder, pieces, ours.L)
    elif ours.epsilon != 1e-12:
        raise UserError(f"model.epsilon={ours.epsilon}: Google's BERT has 1e-12, unchangeable")
    if theirs == "tensorflow":
        usual = {name: x for name, x in wordpiece.USUAL.items() if name != "longest"}
        fields.require_fields(pieces, usual, "tokenizer")
    write_json(folder / KINDS[kind].marker_file, config)
    # Without the added pieces, which a vocab.txt cannot tell from those of text.
    wordpiece.write_vocabulary(pieces.pieces[: pieces.base], folder / "vocab.txt")


def find_architecture(run: Run) -> str:
    if "objective" not in run.config:  # of a fine-tuned run the backbone goes out alone
        return ARCHITECTURES[False, False]
    return ARCHITECTURES[run.head.transform, run.config.objective.get("nsp", True)]


def advise(run: Run, kind: str) -> list[str]:
    """Returns what to tell who loads the release."""
    ours: Any = run.backbone
    if kind != "hugging_face" or ours.pooler or find_architecture(run) != "BertModel":
        return []
    return [
        "the run has no pooler, and transformers would draw one at random: load it by "
        "BertModel.from_pretrained(DIR, add_pooling_layer=False)"
    ]
