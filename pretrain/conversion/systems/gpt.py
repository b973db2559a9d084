"""GPT-1's and GPT-2's releases (Radford et al. 2018, 2019): OpenAI's files, and Hugging Face's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modules.backbones.transformer import Backbone
from pretrain.conversion import config_fields as fields
from pretrain.conversion import hugging_face
from pretrain.conversion.systems import (
    Kind,
    ReleaseSpec,
    Source,
    gpt_arrays,
    gpt_heads,
    gpt_tokenizer,
)
from pretrain.conversion.systems.gpt_arrays import ORDER, TABLES
from pretrain.conversion.systems.gpt_tokenizer import GPT1
from pretrain.inference.run import Run
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import write_json

KINDS = {
    "tensorflow": Kind("tensorflow", "hparams.json", "*.index", writable=False),
    "npz": Kind("npz", "hparams.json", "*.npz"),
    "hugging_face": Kind("safetensors", "config.json", model_type="gpt2"),
    "hugging_face_gpt1": Kind("safetensors", "config.json", model_type="openai-gpt"),
    "openai_npy": Kind("npy_shards", "params_shapes.json", writable=False),
}
NORM = {True: "post", False: "pre"}  # of GPT-1, and not
TEXT_FORMAT = "gpt"
HEADS = gpt_heads.HEADS
build_table = gpt_arrays.build_table
write_frame = gpt_tokenizer.write_frame
Sizes = dict[str, Any]
WIDTH = 64  # of a head of GPT-1, whose release does not say

# --- in --------------------------------------------------------------------------------------

SHARED = dict(
    n_embd=768,
    n_layer=12,
    n_head=12,
    resid_pdrop=0.1,
    embd_pdrop=0.1,
    attn_pdrop=0.1,
    layer_norm_epsilon=1e-5,
    initializer_range=0.02,
)
DEFAULTS: dict[str, dict[str, Any]] = {  # of what a file does not say
    "hugging_face": dict(
        vocab_size=50257, n_positions=1024, activation_function="gelu_new", **SHARED
    ),
    "hugging_face_gpt1": dict(vocab_size=40478, n_positions=512, afn="gelu", **SHARED),
}
ONLY = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
ACTIVATIONS: dict[str, tuple[str, dict[str, str]]] = {  # in their GPT-1, "gelu" is the tanh form
    "hugging_face": ("activation_function", hugging_face.ACTIVATIONS),
    "hugging_face_gpt1": ("afn", {"gelu": "gelu", "relu": "relu"}),
}


def read_release(source: Source) -> ReleaseSpec:
    """Reads what the release is: its sizes by its configuration, GPT-1's by its arrays.

    The option "vocabulary" names a folder that has the tokenizer's files instead.

    Raises:
        UserError: it has no vocabulary, or computes what we do not.
    """
    readers = {"safetensors": read_config_json, "npy_shards": read_sizes_from_shapes}
    sizes = readers.get(KINDS[source.kind].format, read_hparams)(source)
    if sizes["D"] % sizes["H"]:
        raise UserError(
            f"{source.folder}: a width of {sizes['D']} does not divide by {sizes['H']} heads"
        )
    first = source.kind in GPT1
    model = dict(
        name="transformer",
        **sizes,
        K=sizes["D"] // sizes["H"],
        attention="causal",
        norm=NORM[first],
        window=0,
        initializer="normal",
        residual_scale=not first,
    )
    batches = dict(name="windows", B=64 if first else 32, L=model["L"])
    tokens = gpt_tokenizer.read_tokenizer(source)
    folder = Path(source.options.get("vocabulary") or source.folder)
    notes = fields.check_vocabulary(tokens, model["V"], folder)
    notes += gpt_tokenizer.note_rules(source, tokens)
    objective = dict(name="clm", attend_across_documents=False)
    return ReleaseSpec(model, objective, TEXT_FORMAT, batches, tokens, notes=notes)


def read_hparams(source: Source) -> dict[str, Any]:
    """Reads what GPT-2's hparams.json says of a model; all else is in its code."""
    where = source.find_file("hparams.json")
    sizes = read_sizes(source.read_json(where.name), source, where, V="n_vocab", L="n_ctx")
    return sizes | dict(
        F=4 * sizes["D"],
        activation="gelu",
        epsilon=1e-5,
        # hparams.json says nothing of dropout, and OpenAI's code of the release has none.
        dropout=0.0,
        attention_dropout=0.0,
        init_scale=0.02,
        # As model.py draws positions; it draws tokens with 0.02.
        position_scale=0.01,
    )


def read_config_json(source: Source) -> dict[str, Any]:
    """Reads what Hugging Face's config.json says of a model."""
    where = source.find_file("config.json")
    config = DEFAULTS[source.kind] | hugging_face.read_config(source, hugging_face.GPT)
    fields.require_equal(config, ONLY, where)
    embedding, residual = (
        fields.read_rate(config, x, where) for x in ("embd_pdrop", "resid_pdrop")
    )
    if embedding != residual:
        raise UserError(
            f"{where}: embd_pdrop is {embedding} and resid_pdrop {residual}, and here both are "
            "model.dropout: write the one you want in the file as both"
        )
    sizes = read_sizes(config, source, where, V="vocab_size", L="n_positions")
    inner = config.get("n_inner") is not None
    return sizes | dict(
        F=fields.read_size(config, "n_inner", where) if inner else 4 * sizes["D"],
        activation=fields.map_value(config, *ACTIVATIONS[source.kind], where),
        epsilon=fields.read_nonnegative(config, "layer_norm_epsilon", where),
        dropout=residual,
        attention_dropout=fields.read_rate(config, "attn_pdrop", where),
        init_scale=fields.read_nonnegative(config, "initializer_range", where),
    )


def read_sizes(config: Mapping[str, Any], source: Source, where: Path, **names: str) -> Sizes:
    """Reads the sizes in these fields, and in those that both have."""
    names |= dict(D="n_embd", H="n_head")
    sizes = {ours: fields.read_size(config, theirs, where) for ours, theirs in names.items()}
    return sizes | dict(N=fields.read_layers(config, "n_layer", source, where))


def read_sizes_from_shapes(source: Source) -> dict[str, Any]:
    """Reads what the shapes of GPT-1's arrays say of it; all else is in its code."""
    shapes = [source.specs[str(i)].shape for i in range(len(source.specs))]
    N, inner = len(shapes) // len(ORDER), len(TABLES) + ORDER.index("mlp/c_fc/w")
    axes = [2, 2, *N * [3 if name.endswith("/w") else 1 for name in ORDER]]
    if not N or [*map(len, shapes)] != axes or shapes[0][1] % WIDTH:
        raise UserError(
            f"{source.find_file('params_shapes.json')}: is not GPT-1's: positions [L, D], tokens "
            f"[V, D], then {len(ORDER)} arrays of each layer, where D is heads of {WIDTH}"
        )
    (L, D), (V, _), (*_, F) = shapes[0], shapes[1], shapes[inner]
    return dict(
        V=V,
        D=D,
        H=D // WIDTH,
        N=N,
        F=F,
        L=L,
        activation="gelu",
        epsilon=1e-5,
        dropout=0.1,
        attention_dropout=0.1,
        init_scale=0.02,
    )


# --- out -------------------------------------------------------------------------------------


def is_writable(run: Run, kind: str) -> bool:
    """Tells if the run is a GPT-1, which norms what was added, or a GPT-2, which norms before."""
    return getattr(run.backbone, "norm", "pre") == NORM[kind in GPT1]


def write_config_and_tokenizer(run: Run, folder: Path, kind: str, dtype: str) -> None:
    """Writes the configuration and the vocabulary.

    Raises:
        UserError: the run computes what theirs cannot.
    """
    ours = require_gpt(run, kind)
    gpt_tokenizer.check_tokenizer(run, kind)
    if kind == "npz":
        sizes = dict(n_vocab=ours.V, n_ctx=ours.L, n_embd=ours.D, n_head=ours.H, n_layer=ours.N)
        write_json(folder / "hparams.json", sizes)
    else:
        config = build_config_json(ours, kind, run.tokenizer.special["eod"], dtype)
        if "objective" not in run.config:  # their classes find a row's last token by its padding
            config |= dict(pad_token_id=config["eos_token_id"])
        write_json(folder / "config.json", config)
    gpt_tokenizer.write_tokenizer(run, folder, kind, ours.L)


def require_gpt(run: Run, kind: str) -> Backbone:
    """Returns the run's backbone; UserError unless a release of this kind can hold it."""
    ours = run.backbone
    if not isinstance(ours, Backbone) or ours.attention != "causal":
        raise UserError(f"{run.workdir} holds no GPT: that is model.name='transformer', 'causal'")
    required: dict[str, Any] = dict(
        norm=NORM[kind in GPT1],
        window=0,
        S=0,
        normed_embedding=False,
        pooler=False,
        K=ours.D / ours.H,
    )
    if kind != "hugging_face":
        required |= dict(F=4 * ours.D)
    if kind == "npz":
        required |= dict(activation="gelu", epsilon=1e-5)
    return fields.require_parts(run, required, dict(tied=True, bias=False, transform=False))


def build_config_json(ours: Backbone, kind: str, eod: int, dtype: str) -> dict[str, Any]:
    field, activations = ACTIVATIONS[kind]
    named = fields.invert(activations)
    name = "OpenAIGPT" if kind in GPT1 else "GPT2"
    config = dict(
        architectures=[f"{name}LMHeadModel"],
        model_type=KINDS[kind].model_type,
        vocab_size=ours.V,
        n_positions=ours.L,
        n_embd=ours.D,
        n_layer=ours.N,
        n_head=ours.H,
        resid_pdrop=ours.dropout,
        embd_pdrop=ours.dropout,
        attn_pdrop=ours.attention_dropout,
        layer_norm_epsilon=ours.epsilon,
        initializer_range=ours.init_scale,
        bos_token_id=eod,
        eos_token_id=eod,
        dtype=dtype,
    )
    config[field] = fields.map_value(vars(ours), "activation", named, Path("model"))
    return config | ({} if kind in GPT1 else dict(n_inner=ours.F))
