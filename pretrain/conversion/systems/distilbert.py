"""DistilBERT's releases (Sanh et al. 2019, arXiv 1910.01108): a BERT without segments, pooler."""

from collections.abc import Iterable
from pathlib import Path

from modules.backbones.transformer import Backbone
from pretrain.conversion import config_fields as fields
from pretrain.conversion import hugging_face
from pretrain.conversion.name_map import Rows, Shapes, Table, expand_rows
from pretrain.conversion.systems import Kind, ReleaseSpec, Source, bert_family, bert_tokenizer
from pretrain.conversion.task_heads import Heads, hidden_layer, list_row_heads, list_token_heads
from pretrain.data.tokenizers import wordpiece
from pretrain.inference.run import Run
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import update_json, write_json

KINDS = {"hugging_face": Kind("safetensors", "config.json", model_type="distilbert")}
TEXT_FORMAT = "bert"
ALIASES = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
DEFAULTS = dict(  # of what a file does not say
    vocab_size=30522,
    max_position_embeddings=512,
    n_layers=6,
    n_heads=12,
    dim=768,
    hidden_dim=3072,
    dropout=0.1,
    attention_dropout=0.1,
    activation="gelu",
    initializer_range=0.02,
)
EPSILON = 1e-12  # of its norms, which no field says

# --- names -----------------------------------------------------------------------------------

PREFIX = "distilbert."
EMBEDDINGS, LAYER = f"{PREFIX}embeddings.", f"{PREFIX}transformer.layer.{{n}}."
LAYERS, PROJECTOR = "backbone/layers/", "vocab_projector"


def linear(weight: str, bias: str, theirs: str, form: str) -> Rows:
    return {weight: (f"{theirs}.weight", form), bias: (f"{theirs}.bias", form_bias(bias))}


def form_bias(bias: str) -> str:
    return {"HK": "(HK)"}.get(letters := bias.rpartition("_")[2], letters)


def norm(ours: str, theirs: str) -> Rows:
    return linear(f"{ours}/scale_D", f"{ours}/bias_D", theirs, "D")


ROWS: Rows = {
    "backbone/token_VD": (f"{EMBEDDINGS}word_embeddings.weight", "VD"),
    "backbone/position_LD": (f"{EMBEDDINGS}position_embeddings.weight", "LD"),
    **norm("backbone/embedding_norm", f"{EMBEDDINGS}LayerNorm"),
    **{
        ours: row
        for x in "qkv"
        for ours, row in linear(
            f"{LAYERS}attention/w{x}_DHK",
            f"{LAYERS}attention/b{x}_HK",
            f"{LAYER}attention.{x}_lin",
            "(HK)D",
        ).items()
    },
    **linear(
        f"{LAYERS}attention/wo_HKD",
        f"{LAYERS}attention/bo_D",
        f"{LAYER}attention.out_lin",
        "D(HK)",
    ),
    **norm(f"{LAYERS}attention_norm", f"{LAYER}sa_layer_norm"),
    **linear(f"{LAYERS}ffn/wi_DF", f"{LAYERS}ffn/bi_F", f"{LAYER}ffn.lin1", "FD"),
    **linear(f"{LAYERS}ffn/wo_FD", f"{LAYERS}ffn/bo_D", f"{LAYER}ffn.lin2", "DF"),
    **norm(f"{LAYERS}ffn_norm", f"{LAYER}output_layer_norm"),
    **linear("head/transform_DD", "head/transform_bias_D", "vocab_transform", "OI -> IO"),
    **norm("head/transform_norm", "vocab_layer_norm"),
    "head/bias_V": (f"{PROJECTOR}.bias", "V"),
}
HEADS: Heads = {
    **list_row_heads(
        "DistilBert",
        "classifier",
        {"relu": hidden_layer("pre_classifier")},
        pool="first",
        dropout="seq_classif_dropout",
    ),
    **list_token_heads("DistilBert", dropout="dropout"),
}


def build_table(kind: str, shapes: Shapes, names: Iterable[str] = ()) -> Table:
    """Builds the table of their arrays and ours.

    Args:
        names: those of a release that was found; a model without heads has no "distilbert." there.
    """
    absent = bert_family.find_absent_prefix(PREFIX, shapes, names)
    rows = {ours: (theirs.removeprefix(absent), form) for ours, (theirs, form) in ROWS.items()}
    # Files may hold the tied projection a second time.
    copies = {f"{PROJECTOR}.weight": rows["backbone/token_VD"][0]}
    return Table(expand_rows(rows, shapes), copies if "head/bias_V" in shapes else {})


# --- in and out ------------------------------------------------------------------------------


def read_release(source: Source) -> ReleaseSpec:
    """Reads what the release is: its head by its arrays, the rest by its configuration.

    Raises:
        UserError: it has no vocabulary, or computes what we do not.
    """
    where = source.find_file("config.json")
    config = DEFAULTS | hugging_face.read_config(source, ALIASES)
    D, H = (fields.read_size(config, name, where) for name in ("dim", "n_heads"))
    if D % H:
        raise UserError(f"{where}: dim={D} does not divide by n_heads={H}")
    has_head = f"{PROJECTOR}.bias" in source.specs
    model = dict(
        name="transformer",
        V=fields.read_size(config, "vocab_size", where),
        D=D,
        H=H,
        K=D // H,
        N=fields.read_layers(config, "n_layers", source, where),
        F=fields.read_size(config, "hidden_dim", where),
        L=fields.read_size(config, "max_position_embeddings", where),
        attention="bi",
        norm="post",
        S=0,
        normed_embedding=True,
        pooler=False,
        activation=fields.map_value(config, "activation", hugging_face.ACTIVATIONS, where),
        epsilon=EPSILON,
        dropout=fields.read_rate(config, "dropout", where),
        attention_dropout=fields.read_rate(config, "attention_dropout", where),
        init_scale=fields.read_nonnegative(config, "initializer_range", where),
    )
    tokens = bert_tokenizer.read_tokenizer(source)
    has, notes = dict(head=has_head), bert_tokenizer.note_vocabulary(source, tokens, model["V"])
    head = dict(transform=True, bias=True)
    return bert_family.build_spec(model, TEXT_FORMAT, tokens, has, head, notes)


def is_writable(run: Run, kind: str) -> bool:
    return isinstance(run.backbone, Backbone) and run.backbone.S == 0


def write_config_and_tokenizer(run: Run, folder: Path, kind: str, dtype: str) -> None:
    """Writes the configuration and the vocabulary.

    Raises:
        UserError: the run computes what theirs cannot.
    """
    required = dict(
        attention="bi", norm="post", normed_embedding=True, pooler=False, epsilon=EPSILON
    )
    ours = fields.require_parts(run, required, dict(tied=True, bias=run.head.transform))
    pieces = fields.require_tokenizer(run, wordpiece.Tokenizer, "WordPiece")
    config = dict(
        architectures=["DistilBertForMaskedLM" if run.head.transform else "DistilBertModel"],
        model_type="distilbert",
        activation=fields.export_activation(ours, hugging_face.ACTIVATIONS, run.workdir),
        attention_dropout=ours.attention_dropout,
        dropout=ours.dropout,
        dim=ours.D,
        hidden_dim=ours.F,
        n_heads=ours.H,
        n_layers=ours.N,
        max_position_embeddings=ours.L,
        vocab_size=ours.V,
        initializer_range=ours.init_scale,
        pad_token_id=pieces.special["pad"],
        tie_word_embeddings=True,
        dtype=dtype,
    )
    write_json(folder / "config.json", config)
    bert_tokenizer.write_tokenizer(folder, pieces, ours.L)
    # Its code takes no segments.
    names = [name for name in hugging_face.INPUT_NAMES if name != "token_type_ids"]
    update_json(folder / "tokenizer_config.json", model_input_names=names)
    wordpiece.write_vocabulary(pieces.pieces[: pieces.base], folder / "vocab.txt")
