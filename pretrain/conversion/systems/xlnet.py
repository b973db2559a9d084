"""XLNet's releases (Yang et al. 2019): the authors' TensorFlow checkpoints, and Hugging Face's."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from modules.backbones.two_stream import Backbone
from pretrain.conversion import config_fields as fields
from pretrain.conversion import hugging_face, parity
from pretrain.conversion.name_map import Link, Rows, Shapes, Table, expand_rows
from pretrain.conversion.systems import Kind, ReleaseSpec, Source, xlnet_heads, xlnet_tokenizer
from pretrain.data.tokenizers import sentencepiece, unigram
from pretrain.inference.run import Run
from pretrain.runtime.json_files import write_json

KINDS = {
    "tensorflow": Kind("tensorflow", "xlnet_config.json", "*.index", writable=False),
    "npz": Kind("npz", "xlnet_config.json", "*.npz"),
    "hugging_face": Kind("safetensors", "config.json", model_type="xlnet"),
}
TEXT_FORMAT = "xlnet"
HEADS = xlnet_heads.HEADS
compare_outputs = parity.compare_xlnet
note_tokenizer = xlnet_tokenizer.note_tokenizer

# --- names -----------------------------------------------------------------------------------

BIASES = {"content_HK": "r_w_bias", "position_HK": "r_r_bias", "segment_HK": "r_s_bias"}
NORMS = {"attention_norm": "rel_attn", "ffn_norm": "ff"}
LAYERS = "backbone/layers/"
SCOPE = "model/transformer/"
LAYER = f"{SCOPE}layer_{{n}}/"
TENSORFLOW: Rows = {
    "backbone/token_VD": (f"{SCOPE}word_embedding/lookup_table", "VD"),
    "backbone/query_1D": (f"{SCOPE}mask_emb/mask_emb", "1QD -> QD"),
    "head/bias_V": ("model/lm_loss/bias", "V"),
    **{f"{LAYERS}attention/w{x}_DHK": (f"{LAYER}rel_attn/{x}/kernel", "DHK") for x in "qkvr"},
    f"{LAYERS}attention/wo_HKD": (f"{LAYER}rel_attn/o/kernel", "DHK -> HKD"),
    f"{LAYERS}attention/segment_SHK": (f"{SCOPE}seg_embed", "NSHK -> NSHK"),
    **{
        f"{LAYERS}attention/biases/{ours}": (SCOPE + theirs, "NHK -> NHK")
        for ours, theirs in BIASES.items()
    },
    **{f"backbone/biases/{ours}": (SCOPE + theirs, "HK") for ours, theirs in BIASES.items()},
    **{
        f"{LAYERS}{ours}/{param}_D": (f"{LAYER}{theirs}/LayerNorm/{name}", "D")
        for ours, theirs in NORMS.items()
        for param, name in (("scale", "gamma"), ("bias", "beta"))
    },
    f"{LAYERS}ffn/wi_DF": (f"{LAYER}ff/layer_1/kernel", "DF"),
    f"{LAYERS}ffn/bi_F": (f"{LAYER}ff/layer_1/bias", "F"),
    f"{LAYERS}ffn/wo_FD": (f"{LAYER}ff/layer_2/kernel", "FD"),
    f"{LAYERS}ffn/bo_D": (f"{LAYER}ff/layer_2/bias", "D"),
}
PREFIX = "transformer."
TORCH_LAYER = f"{PREFIX}layer.{{n}}."
HUGGING_FACE: Rows = {  # always with biases of each layer
    "backbone/token_VD": (f"{PREFIX}word_embedding.weight", "VD"),
    "backbone/query_1D": (f"{PREFIX}mask_emb", "1QD -> QD"),
    "head/bias_V": ("lm_loss.bias", "V"),
    **{f"{LAYERS}attention/w{x}_DHK": (f"{TORCH_LAYER}rel_attn.{x}", "DHK") for x in "qkvr"},
    f"{LAYERS}attention/wo_HKD": (f"{TORCH_LAYER}rel_attn.o", "DHK -> HKD"),
    f"{LAYERS}attention/segment_SHK": (f"{TORCH_LAYER}rel_attn.seg_embed", "SHK"),
    **{
        f"{LAYERS}attention/biases/{ours}": (f"{TORCH_LAYER}rel_attn.{theirs}", "HK")
        for ours, theirs in BIASES.items()
    },
    **{
        f"backbone/biases/{ours}": (f"{PREFIX}layer.0.rel_attn.{theirs}", "HK")
        for ours, theirs in BIASES.items()
    },
    **{
        f"{LAYERS}{ours}/{param}_D": (f"{TORCH_LAYER}{theirs}.layer_norm.{name}", "D")
        for ours, theirs in NORMS.items()
        for param, name in (("scale", "weight"), ("bias", "bias"))
    },
    f"{LAYERS}ffn/wi_DF": (f"{TORCH_LAYER}ff.layer_1.weight", "FD -> DF"),
    f"{LAYERS}ffn/bi_F": (f"{TORCH_LAYER}ff.layer_1.bias", "F"),
    f"{LAYERS}ffn/wo_FD": (f"{TORCH_LAYER}ff.layer_2.weight", "DF -> FD"),
    f"{LAYERS}ffn/bo_D": (f"{TORCH_LAYER}ff.layer_2.bias", "D"),
}
IGNORED = {
    r".*/(adam_[mv]|Adam(_1)?)": "slots of the optimiser",
    r"global_step|beta[12]_power": "the optimiser's count",
}
OPTIONAL = {  # a fine-tuned model is released without
    "backbone/query_1D": "the query stream's beginning was not saved: it does not predict",
    "head/bias_V": "the softmax's biases were not saved: it does not predict",
}


def build_table(kind: str, shapes: Shapes, names: Iterable[str] = ()) -> Table:
    """Builds the table of their arrays and ours.

    Args:
        names: those of a release that was found; "transformer." may be missing before them, and
            what only predictions need.
    """
    there = set(names)
    rows = HUGGING_FACE if kind == "hugging_face" else TENSORFLOW
    # A bare XLNetModel is saved without the name that models around it give it.
    if kind == "hugging_face" and there and not any(name.startswith(PREFIX) for name in there):
        rows = {ours: (row[0].removeprefix(PREFIX), *row[1:]) for ours, row in rows.items()}
    absent = {ours: why for ours, why in OPTIONAL.items() if there and rows[ours][0] not in there}
    head, token = "lm_loss.weight", "backbone/token_VD"
    if head in there and rows[token][0] not in there:  # one of the two is enough
        rows = {**rows, token: (head, *rows[token][1:])}
    links = expand_rows({ours: row for ours, row in rows.items() if ours not in absent}, shapes)
    if kind != "hugging_face":
        return Table(links, {}, IGNORED, absent)
    copies = {head: rows[token][0]} if rows[token][0] != head else {}
    return Table(repeat_for_layers(links, shapes), copies, {}, absent)


def repeat_for_layers(links: list[Link], shapes: Shapes) -> list[Link]:
    """Repeats biases that all our layers have in common for each of theirs."""
    # Layer 0's are in the table: they are what is read.
    later = range(1, shapes[f"{LAYERS}attention/segment_SHK"][0])
    shared = [link for link in links if link.ours.startswith("backbone/biases/")]
    return links + [
        link._replace(theirs=link.theirs.replace("layer.0.", f"layer.{n}."))
        for link in shared
        for n in later
    ]


# --- in --------------------------------------------------------------------------------------

DEFAULTS: dict[str, dict[str, Any]] = {  # of what a file does not say
    "tensorflow": dict(
        attn_type="bi", clamp_len=-1, same_length=False, dropout=0.1, initializer_range=0.02
    ),
    "hugging_face": dict(
        vocab_size=32000,
        d_model=1024,
        n_layer=24,
        n_head=16,
        d_inner=4096,
        ff_activation="gelu",
        attn_type="bi",
        clamp_len=-1,
        same_length=False,
        dropout=0.1,
        initializer_range=0.02,
        mem_len=512,
    ),
}
ONLY = {"layer_norm_eps": 1e-12, "tie_word_embeddings": True, "bi_data": False}
OTHER_RULES = (
    "text is cut as transformers does it by tokenizer.json, which is not XLNet's own way: for "
    f"that, put {sentencepiece.MODEL} beside it",
)
MEMORY, REUSE = 384, 256  # the paper's, where a file does not say


def read_release(source: Source) -> ReleaseSpec:
    """Reads what the release is, by its configuration.

    The option "vocabulary" names a folder that has spiece.model instead, "lower" says whether text
    is lower-cased.

    Raises:
        UserError: it has no spiece.model, or computes what we do not.
    """
    theirs = "hugging_face" if source.kind == "hugging_face" else "tensorflow"
    where = source.find_file(KINDS[source.kind].marker_file)
    if theirs == "hugging_face":
        given = hugging_face.read_config(source, hugging_face.XLNET)
        fields.require_equal(given, ONLY, where)
    else:
        given = source.read_json(where.name)
    config = DEFAULTS[theirs] | given
    tokens = xlnet_tokenizer.read_tokenizer(source)
    reuse_len = read_positive(config, "reuse_len", REUSE, where)
    dropout = fields.read_rate(config, "dropout", where)
    model = dict(
        name="two_stream",
        **read_sizes(config, theirs, source, where),
        M=read_positive(config, "mem_len", MEMORY, where),
        reuse_len=reuse_len,
        # transformers gives each layer biases of its own, whatever the file says.
        untie_r=theirs == "hugging_face"
        or fields.map_value(config, "untie_r", fields.SWITCH, where),
        attention=fields.map_value(config, "attn_type", {"bi": "bi", "uni": "causal"}, where),
        same_length=fields.map_value(config, "same_length", fields.SWITCH, where),
        clamp_len=read_positive(config, "clamp_len", -1, where),
        activation=fields.map_value(
            config, "ff_activation", hugging_face.ACTIVATIONS_BY_CODE[theirs], where
        ),
        # The released code has one rate for both.
        dropout=dropout,
        attention_dropout=dropout,
        init_scale=fields.read_nonnegative(config, "initializer_range", where),
    )
    notes = fields.check_vocabulary(tokens, model["V"], source.folder)
    notes += OTHER_RULES if isinstance(tokens, unigram.Tokenizer) else ()
    # As in the paper, half of a window is reused.
    batches = dict(name="lanes", B=32, L=2 * reuse_len, reuse_len=reuse_len, bidirectional=True)
    return ReleaseSpec(
        model,
        dict(name="plm"),
        TEXT_FORMAT,
        batches,
        tokens,
        notes=notes,
        head=dict(bias=True),
    )


def read_sizes(config: dict[str, Any], theirs: str, source: Source, where: Path) -> dict[str, int]:
    vocabulary = "vocab_size" if theirs == "hugging_face" else "n_token"
    names = dict(V=vocabulary, D="d_model", H="n_head", F="d_inner")
    sizes = {ours: fields.read_size(config, name, where) for ours, name in names.items()}
    sizes |= dict(N=fields.read_layers(config, "n_layer", source, where))
    # transformers computes it, and its newer files do not say it.
    if theirs == "hugging_face" and config.get("d_head") is None:
        return sizes | dict(K=sizes["D"] // sizes["H"])
    return sizes | dict(K=fields.read_size(config, "d_head", where))


def read_positive(config: dict[str, Any], field: str, otherwise: int, where: Path) -> int:
    """Reads a whole number above 0; `otherwise` where the field is missing or switched off."""
    return (
        otherwise if config.get(field) in (None, 0, -1) else fields.read_size(config, field, where)
    )


# --- out -------------------------------------------------------------------------------------


def is_writable(run: Run, kind: str) -> bool:
    return isinstance(run.backbone, Backbone)


def write_config_and_tokenizer(run: Run, folder: Path, kind: str, dtype: str) -> None:
    """Writes the configuration and the vocabulary.

    Raises:
        UserError: the run computes what theirs cannot.
    """
    ours = fields.require_parts(run, {}, dict(tied=True, bias=True, transform=False))
    theirs = "hugging_face" if kind == "hugging_face" else "tensorflow"
    config = dict(
        d_head=ours.K,
        d_inner=ours.F,
        d_model=ours.D,
        n_head=ours.H,
        n_layer=ours.N,
        ff_activation=fields.export_activation(
            ours, hugging_face.ACTIVATIONS_BY_CODE[theirs], Path("model")
        ),
    )
    if theirs == "tensorflow":
        # Their file has no fields for these, which are flags of their programs.
        fields.require_fields(ours, dict(attention="bi", same_length=False, clamp_len=-1))
        config |= dict(n_token=ours.V, untie_r=ours.untie_r)
    else:
        # transformers has heads of no other width.
        fields.require_fields(ours, dict(K=ours.D / ours.H))
        config |= build_config_json(ours, run.tokenizer.special.get("pad"), dtype)
    xlnet_tokenizer.write_tokenizer(run, folder, theirs)
    write_json(folder / KINDS[kind].marker_file, config)


def build_config_json(ours: Any, pad: int | None, dtype: str) -> dict[str, Any]:
    """Builds what of their config.json the other files do not say."""
    # Without `reuse_len`: theirs would keep no more of any text, however it is read.
    return dict(
        architectures=["XLNetLMHeadModel"],
        model_type="xlnet",
        vocab_size=ours.V,
        attn_type="uni" if ours.is_causal else "bi",
        same_length=ours.same_length,
        clamp_len=ours.clamp_len,
        untie_r=True,
        mem_len=ours.M or None,
        dropout=ours.dropout,
        dtype=dtype,
        initializer_range=ours.init_scale,
        layer_norm_eps=1e-12,
        bi_data=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=pad,
    )
