"""RoBERTa's releases (Liu et al. 2019, arXiv 1907.11692), as Hugging Face has them.

Its positions begin behind the padding's id: the first rows of that table are no position's.
"""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import processors

from modules.backbones.transformer import Backbone
from pretrain.conversion import config_fields as fields
from pretrain.conversion import hugging_face
from pretrain.conversion.name_map import Shapes, Table, expand_rows
from pretrain.conversion.systems import Kind, ReleaseSpec, Source, bert_family
from pretrain.conversion.task_heads import (
    Heads,
    hidden_layer,
    list_row_heads,
    list_token_heads,
)
from pretrain.data.tokenizers import roberta_bpe, tokenizer_json
from pretrain.data.tokenizers.bpe_files import SAVED
from pretrain.inference.run import Run
from pretrain.runtime.json_files import write_json

KINDS = {"hugging_face": Kind("safetensors", "config.json", model_type="roberta")}
TEXT_FORMAT = "roberta"
DEFAULTS = bert_family.DEFAULTS | dict(type_vocab_size=2, pad_token_id=1)
PREFIX, HEAD, TOKEN = "roberta.", "lm_head.bias", "backbone/token_VD"
SPELLED = {  # Hugging Face's BERT -> its RoBERTa
    "bert.": PREFIX,
    "cls.predictions.transform.dense": "lm_head.dense",
    "cls.predictions.transform.LayerNorm": "lm_head.layer_norm",
    "cls.predictions.bias": HEAD,
}
IGNORED = {r"(roberta\.)?embeddings\.position_ids": "0, 1, 2, ..."}
FIRST_ROWS = 2  # of the table of positions: those of the ids up to <pad>'s
HEADS: Heads = {
    **list_row_heads(
        "Roberta",
        "classifier",
        {"pooler": {}, "tanh": hidden_layer("roberta.pooler.dense")},
        pool="first",
        dropout="hidden_dropout_prob",
    ),
    # Its class of rows has a hidden layer of its own and no pooler; that of choices has one.
    **dict.fromkeys(
        ("class", "number"),
        list_row_heads(
            "Roberta",
            "classifier.out_proj",
            {"tanh": hidden_layer("classifier.dense")},
            pool="first",
            dropout="classifier_dropout",
            lacks=bert_family.POOLER,
        )["class"],
    ),
    **list_token_heads("Roberta", dropout="classifier_dropout", lacks=bert_family.POOLER),
}


def build_table(kind: str, shapes: Shapes, names: Iterable[str] = ()) -> Table:
    """Builds the table of their arrays and ours, see `bert.build_table`."""
    absent = bert_family.find_absent_prefix(PREFIX, shapes, names)
    rows: dict[str, tuple[str, ...]] = {
        ours: (spell_name(theirs).removeprefix(absent), form)
        for ours, (theirs, form) in bert_family.list_torch_rows().items()
    }
    rows |= {"backbone/position_LD": (rows["backbone/position_LD"][0], "LD", f"L+{FIRST_ROWS}")}
    # Files may hold the tied decoder a second time.
    copies = {"lm_head.decoder.bias": HEAD, "lm_head.decoder.weight": rows[TOKEN][0]}
    return Table(expand_rows(rows, shapes), copies if "head/bias_V" in shapes else {}, IGNORED)


def spell_name(name: str) -> str:
    for theirs, other in SPELLED.items():
        name = name.replace(theirs, other)
    return name


def read_release(source: Source) -> ReleaseSpec:
    """Reads what the release is: its parts by its arrays, the rest by its configuration.

    Raises:
        UserError: it has no vocabulary, or computes what we do not.
    """
    where = source.find_file("config.json")
    config = DEFAULTS | hugging_face.read_config(source)
    fields.require_equal(config, {"pad_token_id": FIRST_ROWS - 1}, where)
    has = {
        "pooler": any(name.endswith("pooler.dense.weight") for name in source.specs),
        "head": HEAD in source.specs,
    }
    model = bert_family.read_model(config, source, where, hugging_face.ACTIVATIONS)
    model |= dict(L=model["L"] - FIRST_ROWS, pooler=has["pooler"])
    tokens = read_tokenizer(source)
    notes = fields.check_vocabulary(tokens, model["V"], source.folder)
    return bert_family.build_spec(model, TEXT_FORMAT, tokens, has, bert_family.EXACT_HEAD, notes)


def is_writable(run: Run, kind: str) -> bool:
    return isinstance(run.backbone, Backbone)


def write_config_and_tokenizer(run: Run, folder: Path, kind: str, dtype: str) -> None:
    """Writes the configuration and the vocabulary.

    Raises:
        UserError: the run computes what theirs cannot.
    """
    # Theirs adds the row of segment 0 to every token: a backbone without segments has no such.
    required = dict(attention="bi", norm="post", normed_embedding=True, S=max(run.backbone.S, 1))
    ours = bert_family.require_exact_head(run, required)
    pieces = fields.require_tokenizer(run, roberta_bpe.Tokenizer, "RoBERTa's")
    # Words added as wholes have no merges, and vocab.json with merges.txt cannot say them.
    fields.require_fields(pieces, dict(whole=0), "tokenizer")
    config = bert_family.build_config(ours, run, hugging_face.ACTIVATIONS)
    config |= dict(
        architectures=["RobertaForMaskedLM" if run.head.transform else "RobertaModel"],
        model_type="roberta",
        max_position_embeddings=ours.L + FIRST_ROWS,
        layer_norm_eps=ours.epsilon,
        dtype=dtype,
        pad_token_id=pieces.special["pad"],
        bos_token_id=pieces.special["cls"],
        eos_token_id=pieces.special["sep"],
    )
    fields.require_equal(config, {"pad_token_id": FIRST_ROWS - 1}, run.workdir / "tokenizer")
    write_tokenizer(folder, pieces, ours.L)
    write_json(folder / "config.json", config)


def read_tokenizer(source: Source) -> roberta_bpe.Tokenizer:
    """Reads the vocabulary of a release, or of the folder that the option "vocabulary" names.

    Raises:
        UserError: there is none, or text is prepared for it otherwise than here.
    """
    source = source.with_tokenizer_folder()
    hugging_face.check_byte_level(source)
    if all(source.has(name) for name in SAVED):
        vocabulary, merges = (source.find_file(name) for name in SAVED)
        return roberta_bpe.Tokenizer.read(vocabulary, merges)
    source.find_file(tokenizer_json.NAME, *SAVED)
    return roberta_bpe.Tokenizer.of_json(hugging_face.read_tokenizer_json(source))


def write_tokenizer(folder: Path, pieces: roberta_bpe.Tokenizer, L: int) -> None:
    """Writes the vocabulary in both forms, and how Hugging Face's code is to prepare text."""
    marks = {f"{name}_token": piece for name, piece in roberta_bpe.SPECIAL.items()}
    write_json(
        folder / "tokenizer_config.json",
        dict(
            tokenizer_class="RobertaTokenizer",
            add_prefix_space=False,
            model_max_length=L,
            bos_token=marks["cls_token"],
            eos_token=marks["sep_token"],
            **marks,
        ),
    )
    pieces.write(folder / SAVED[0], folder / SAVED[1])
    library = pieces.copy_library()
    sep, cls = ((roberta_bpe.SPECIAL[x], pieces.special[x]) for x in ("sep", "cls"))
    library.post_processor = processors.RobertaProcessing(sep, cls, add_prefix_space=False)
    hugging_face.write_tokenizer(folder, library, roberta_bpe.SPECIAL.values())
