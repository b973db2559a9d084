"""ELECTRA's releases (Clark et al. 2020, arXiv 2003.10555): discriminators, and generators.

The discriminator's own head, of replaced tokens, is left out: no objective here trains it.
"""

from collections.abc import Iterable
from pathlib import Path

from modules.backbones.transformer import Backbone
from pretrain.conversion import config_fields as fields
from pretrain.conversion import hugging_face
from pretrain.conversion.name_map import Rows, Shapes, Table, expand_rows
from pretrain.conversion.systems import (
    Kind,
    ReleaseSpec,
    Source,
    bert_family,
    bert_tokenizer,
    read_origin,
)
from pretrain.conversion.task_heads import Heads, hidden_layer, list_row_heads, list_token_heads
from pretrain.data.tokenizers import wordpiece
from pretrain.inference.run import Run
from pretrain.runtime.json_files import write_json

KINDS = {"hugging_face": Kind("safetensors", "config.json", model_type="electra")}
TEXT_FORMAT = "bert"
DEFAULTS = bert_family.DEFAULTS | dict(embedding_size=128, hidden_act="gelu", type_vocab_size=2)
PREFIX, HEAD = "electra.", "generator_lm_head"
PREDICTIONS = "generator_predictions"
IGNORED = {
    r"discriminator_predictions\..*": "the head of replaced tokens, which no objective here trains",
    r"(electra\.)?embeddings\.position_ids": "0, 1, 2, ...",
}
BACKBONE: Rows = {
    ours: (theirs.replace("bert.", PREFIX), form)
    for ours, (theirs, form) in bert_family.list_torch_rows().items()
    if ours.startswith("backbone/") and ours not in bert_family.POOLER
}
ROWS: Rows = {
    **BACKBONE,
    # The same tables, where they are narrower than the states.
    **{
        f"{ours[:-1]}E": (theirs, f"{form[:-1]}E")
        for ours, (theirs, form) in BACKBONE.items()
        if ours in ("backbone/token_VD", "backbone/position_LD", "backbone/segment_SD")
    },
    "backbone/project_ED": (f"{PREFIX}embeddings_project.weight", "DE"),
    "backbone/project_bias_D": (f"{PREFIX}embeddings_project.bias", "D"),
    "head/transform_DE": (f"{PREDICTIONS}.dense.weight", "ED"),
    "head/transform_bias_E": (f"{PREDICTIONS}.dense.bias", "E"),
    "head/transform_DD": (f"{PREDICTIONS}.dense.weight", "OI -> IO"),
    "head/transform_bias_D": (f"{PREDICTIONS}.dense.bias", "D"),
    "head/transform_norm/scale_D": (f"{PREDICTIONS}.LayerNorm.weight", "D"),
    "head/transform_norm/bias_D": (f"{PREDICTIONS}.LayerNorm.bias", "D"),
    "head/bias_V": (f"{HEAD}.bias", "V"),
}
ROW_CLASSES = list_row_heads(
    "Electra",
    "classifier.out_proj",
    {"gelu_erf": hidden_layer("classifier.dense")},
    pool="first",
    dropout="classifier_dropout",
)
HEADS: Heads = {
    **ROW_CLASSES,
    **list_token_heads("Electra", dropout="classifier_dropout"),
    # Options are compared by `sequence_summary`, whose form config.json says.
    "choice": list_row_heads(
        "Electra",
        "classifier",
        {"tanh": hidden_layer("sequence_summary.summary")},
        pool="first",
        dropout="summary_last_dropout",
        fields=dict(summary_type="first", summary_use_proj=True, summary_activation="tanh"),
    )["choice"],
}


def build_table(kind: str, shapes: Shapes, names: Iterable[str] = ()) -> Table:
    """Builds the table of their arrays and ours.

    Args:
        names: those of a release that was found; a model without heads has no "electra." there.
    """
    absent = bert_family.find_absent_prefix(PREFIX, shapes, names)
    rows = {ours: (theirs.removeprefix(absent), form) for ours, (theirs, form) in ROWS.items()}
    # Files may hold the tied projection a second time.
    copies = {f"{HEAD}.weight": rows["backbone/token_VD"][0]} if "head/bias_V" in shapes else {}
    return Table(expand_rows(rows, shapes), copies, IGNORED)


def read_release(source: Source) -> ReleaseSpec:
    """Reads what the release is: its head by its arrays, the rest by its configuration.

    Raises:
        UserError: it has no vocabulary, or computes what we do not.
    """
    where = source.find_file("config.json")
    config = DEFAULTS | hugging_face.read_config(source)
    has_head = f"{HEAD}.bias" in source.specs
    model = bert_family.read_model(config, source, where, hugging_face.ACTIVATIONS)
    E = fields.read_size(config, "embedding_size", where)
    # States as wide as tokens are not projected.
    model |= dict(embedding_size=0 if model["D"] == E else E, pooler=False)
    tokens = bert_tokenizer.read_tokenizer(source)
    has, notes = dict(head=has_head), bert_tokenizer.note_vocabulary(source, tokens, model["V"])
    return bert_family.build_spec(model, TEXT_FORMAT, tokens, has, bert_family.EXACT_HEAD, notes)


def is_writable(run: Run, kind: str) -> bool:
    """Tells if tokens are narrower than states; as wide ones a BERT has, too."""
    if not isinstance(run.backbone, Backbone) or not run.backbone.S:
        return False
    return run.backbone.embedding_size > 0 or read_origin(run.workdir).get("system") == "electra"


def write_config_and_tokenizer(run: Run, folder: Path, kind: str, dtype: str) -> None:
    """Writes the configuration and the vocabulary.

    Raises:
        UserError: the run computes what theirs cannot.
    """
    required = dict(attention="bi", norm="post", normed_embedding=True, pooler=False)
    ours = bert_family.require_exact_head(run, required)
    pieces = fields.require_tokenizer(run, wordpiece.Tokenizer, "WordPiece")
    config = bert_family.build_config(ours, run, hugging_face.ACTIVATIONS)
    config |= dict(
        architectures=["ElectraForMaskedLM" if run.head.transform else "ElectraModel"],
        model_type="electra",
        embedding_size=ours.embedding_size or ours.D,
        layer_norm_eps=ours.epsilon,
        dtype=dtype,
        pad_token_id=pieces.special["pad"],
    )
    bert_tokenizer.write_tokenizer(folder, pieces, ours.L)
    write_json(folder / "config.json", config)
    wordpiece.write_vocabulary(pieces.pieces[: pieces.base], folder / "vocab.txt")
