"""BERT's releases (Devlin et al. 2018): Google's TensorFlow checkpoints, and Hugging Face's."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from modules.backbones.transformer import Backbone
from pretrain.conversion import config_fields as fields
from pretrain.conversion import hugging_face
from pretrain.conversion.name_map import Shapes, Table, expand_rows
from pretrain.conversion.systems import Kind, ReleaseSpec, Source, bert_tokenizer
from pretrain.conversion.systems.bert_family import (
    DEFAULTS,
    POOLER,
    TENSORFLOW,
    build_config,
    find_absent_prefix,
    list_torch_rows,
    read_model,
)
from pretrain.conversion.task_heads import Heads, hidden_layer, list_row_heads, list_token_heads
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
IGNORED = {
    "tensorflow": {
        r".*/(adam_[mv]|Adam(_1)?|AdamWeightDecay\w*)": "slots of the optimiser",
        r"global_step|beta[12]_power": "the optimiser's count",
    },
    "hugging_face": {r"(bert\.)?embeddings\.position_ids": "0, 1, 2, ..."},
}

HEADS: Heads = {
    **list_row_heads(
        "Bert",
        "classifier",
        # Theirs always has a pooler: a layer of the head's own stands in its place.
        {"pooler": {}, "tanh": hidden_layer("bert.pooler.dense")},
        pool="first",
        dropout="classifier_dropout",
    ),
    **list_token_heads("Bert", dropout="classifier_dropout", lacks=POOLER),
}


def build_table(kind: str, shapes: Shapes, names: Iterable[str] = ()) -> Table:
    """Builds the table of their arrays and ours.

    Args:
        names: those of a release that was found; a model without heads has no "bert." there.
    """
    if kind != "hugging_face":
        return Table(expand_rows(TENSORFLOW, shapes), {}, IGNORED["tensorflow"])
    names = list(names)
    # A model without heads is saved without the prefix that the others have.
    absent = find_absent_prefix("bert.", shapes, names)
    # The first conversions to PyTorch kept TensorFlow's names of a norm.
    gamma = any(name.endswith("LayerNorm.gamma") for name in names)
    rows = list_torch_rows(absent, gamma)
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
        config = DEFAULTS | hugging_face.read_config(source)
    else:
        config = DEFAULTS | source.read_json(where.name)
    has = {part: any(name.endswith(end) for name in source.specs) for part, end in PARTS.items()}
    model = read_model(config, source, where, hugging_face.ACTIVATIONS_BY_CODE[theirs])
    model["pooler"] = has["pooler"]
    batches = dict(
        # Without a head of next sentences rows are RoBERTa's, which are no pairs.
        name="pairs" if has["nsp"] else "windows",
        B=32,
        L=model["L"],
        **(dict(next_sentence=True) if has["nsp"] else dict(framed=True)),
    )
    heads = {"next_DC": (model["D"], 2), "next_bias_C": (2,)} if has["nsp"] else {}
    tokens = bert_tokenizer.read_tokenizer(source)
    notes = bert_tokenizer.note_vocabulary(source, tokens, model["V"])
    missing = tuple(part for part, there in has.items() if not there)
    objective = dict(name="mlm", nsp=has["nsp"])
    head = dict(transform=has["head"], bias=has["head"])
    return ReleaseSpec(model, objective, TEXT_FORMAT, batches, tokens, heads, missing, notes, head)


def is_writable(run: Run, kind: str) -> bool:
    ours = run.backbone
    # Without segments it is a DistilBERT, of narrower tokens an ELECTRA.
    return isinstance(ours, Backbone) and ours.S > 0 and not ours.embedding_size


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
    config = build_config(ours, run, hugging_face.ACTIVATIONS_BY_CODE[theirs])
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
