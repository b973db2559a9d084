"""BERT's releases (Devlin et al. 2018): Google's TensorFlow checkpoints, and Hugging Face's."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import processors

from modules.backbones.transformer import Backbone
from pretrain.conversion.hf_tokenizers import (
    GENERIC,
    configuration,
    joined,
    model,
    part,
    settings,
    vocabulary,
    write_tokenizer,
)
from pretrain.conversion.name_map import Rows, Shapes, Table, links
from pretrain.conversion.systems import (
    Described,
    Kind,
    Source,
    check_layers,
    check_vocabulary,
    chosen,
    nonnegative,
    only,
    rate,
    size,
    tokens_of,
    unlike,
)
from pretrain.data.tokenizers import wordpiece
from pretrain.inference.trained_run import Run
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import write_json

KINDS = {
    "tensorflow": Kind("tensorflow", "bert_config.json", "*.index", out=False),
    "npz": Kind("npz", "bert_config.json", "*.npz"),
    "hugging_face": Kind("safetensors", "config.json", model_type="bert"),
}
TEXT_FORMAT = "bert"
ACTIVATIONS = {  # their names -> ours: Google's "gelu" is the tanh form, Hugging Face's is not
    "tensorflow": {"gelu": "gelu", "relu": "relu"},
    "hugging_face": {
        "gelu_new": "gelu",
        "gelu_pytorch_tanh": "gelu",
        "gelu": "gelu_erf",
        "relu": "relu",
    },
}
DEFAULTS = dict(  # of what a file does not say
    layer_norm_eps=1e-12,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    initializer_range=0.02,
)
SWITCH = {True: True, False: False}
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
        ("backbone/head_DD", "backbone/head_bias_D"), "cls/predictions/transform/dense", "IO -> IO"
    ),
    **norm("backbone/head_norm", "cls/predictions/transform"),
    "backbone/bias_V": ("cls/predictions/output_bias", "V"),
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


def torch_name(name: str, gamma: bool) -> str:
    """Google's name as Hugging Face has it; `gamma`: as its older files have it."""
    if name.startswith("cls/"):
        name = name.replace("predictions/output_bias", "predictions/bias")
        name = name.replace("output_weights", "weight").replace("output_bias", "bias")
    norms = {} if gamma else {r"/gamma$": "/weight", r"/beta$": "/bias"}
    for theirs, other in {"layer_": "layer/", r"/kernel$": "/weight", **norms}.items():
        name = re.sub(theirs, other, name)
    return (f"{name}/weight" if name.endswith("_embeddings") else name).replace("/", ".")


def torch_form(name: str, form: str) -> str:
    """A dense layer's weight has its axes the other way round there."""
    if not name.endswith("/kernel"):
        return form
    theirs, arrow, own = form.partition(" -> ")
    first, second = re.findall(r"\(\w+\)|\w", theirs)
    return second + first + arrow + own


def table(kind: str, shapes: Shapes, names: Iterable[str] = ()) -> Table:
    """Their arrays and ours.

    Args:
        names: those of a release that was found; a model without heads has no "bert." there.
    """
    if kind != "hugging_face":
        return Table(links(TENSORFLOW, shapes), {}, IGNORED["tensorflow"])
    names = list(names) or (["bert."] if shapes.keys() & {"backbone/bias_V", "next_DC"} else [])
    bare = not any(name.startswith("bert.") for name in names)
    gamma = any(name.endswith("LayerNorm.gamma") for name in names)

    def spelled(name: str) -> str:
        return torch_name(name, gamma).removeprefix("bert." if bare else "")

    rows = {
        ours: (spelled(theirs), torch_form(theirs, form))
        for ours, (theirs, form) in TENSORFLOW.items()
    }
    token = "backbone/token_VD"
    copies = {f"{DECODER}.bias": rows["backbone/bias_V"][0], f"{DECODER}.weight": rows[token][0]}
    if f"{DECODER}.weight" in names and rows[token][0] not in names:  # one of the two is enough
        rows[token] = (f"{DECODER}.weight", "VD")
        del copies[f"{DECODER}.weight"]
    has_head = "backbone/bias_V" in shapes
    return Table(links(rows, shapes), copies if has_head else {}, IGNORED["hugging_face"])


def described(source: Source) -> Described:
    """What the release is: its parts by the arrays that are there, the rest by its configuration.

    Raises:
        UserError: it has no vocabulary, or computes what we do not.
    """
    theirs = "hugging_face" if source.kind == "hugging_face" else "tensorflow"
    where = source.path(KINDS[source.kind].knows)
    given = configuration(source, "bert") if theirs == "hugging_face" else source.json(where.name)
    config = DEFAULTS | given
    unlike(config, ONLY, where)
    D, H = size(config, "hidden_size", where), size(config, "num_attention_heads", where)
    if D % H:
        raise UserError(f"{where}: hidden_size={D} does not divide by num_attention_heads={H}")
    has = {part: any(name.endswith(end) for name in source.specs) for part, end in PARTS.items()}
    model = dict(
        name="transformer",
        V=size(config, "vocab_size", where),
        D=D,
        H=H,
        K=D // H,
        N=check_layers(config, "num_hidden_layers", source, where),
        F=size(config, "intermediate_size", where),
        L=size(config, "max_position_embeddings", where),
        attention="bi",
        norm="post",
        S=size(config, "type_vocab_size", where),
        normed_embedding=True,
        head="transform" if has["head"] else "tied",
        pooler=has["pooler"],
        activation=chosen(config, "hidden_act", ACTIVATIONS[theirs], where),
        epsilon=nonnegative(config, "layer_norm_eps", where),
        dropout=rate(config, "hidden_dropout_prob", where),
        attention_dropout=rate(config, "attention_probs_dropout_prob", where),
        initializer="truncated",
        init_scale=nonnegative(config, "initializer_range", where),
    )
    batches = dict(
        name="pairs" if has["nsp"] else "windows",
        B=32,
        L=model["L"],
        **(dict(next_sentence=True) if has["nsp"] else dict(framed=True)),
    )
    heads = {"next_DC": (D, 2), "next_bias_C": (2,)} if has["nsp"] else {}
    tokens = tokenizer(source)
    notes = check_vocabulary(tokens, model["V"], source.folder) + unsaid_case(source, tokens)
    missing = tuple(part for part, there in has.items() if not there)
    objective = dict(name="mlm", nsp=has["nsp"])
    return Described(model, objective, TEXT_FORMAT, batches, tokens, heads, missing, notes)


CLEANING = {  # the names of tokenizer_config.json, and of a normalizer in tokenizer.json
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
LONGEST = 100  # characters of a word in Hugging Face's code, where tokenizer.json does not say
OWN = {"unk_token": wordpiece.SPECIAL["unk"], "continuing_subword_prefix": wordpiece.INSIDE}


def tokenizer(source: Source) -> wordpiece.Tokenizer:
    """The vocabulary of the release; whether text is lower-cased, as its files or options say.

    Of Hugging Face's two files tokenizer_config.json decides where both say something, as it
    does in their code; but under a general class tokenizer.json does alone.
    """
    source = source.of_tokens()
    is_theirs = source.kind == "hugging_face"
    rules = cleaning(source) if is_theirs else {}
    if source.options.get("lower") is not None:
        rules["lowercase"] = source.options["lower"]
    pieces = (
        vocabulary_of(source) if is_theirs else wordpiece.read_vocabulary(source.path("vocab.txt"))
    )
    # Google's files do not say: a cased vocabulary has capitals.
    cased = any(re.search("[A-Z]", x) for x in pieces if not re.fullmatch(r"\[.*\]", x))
    lower = rules.get("lowercase", not cased)
    accents = rules.get("strip_accents")
    more: dict[str, Any] = {}
    if is_theirs:
        joint, added = joined(source, pieces)
        more = dict(
            clean_text=rules.get("clean_text", True),
            longest=longest_word(source),
            added=added,
            handle_chinese_chars=rules.get("handle_chinese_chars", True),
            base=None if len(joint) == len(pieces) else len(pieces),
        )
        pieces = joint
    return wordpiece.Tokenizer(pieces, lower, not (lower if accents is None else accents), **more)


def unsaid_case(source: Source, tokens: wordpiece.Tokenizer) -> tuple[str, ...]:
    """What to say where the vocabulary alone tells that capitals stay, which theirs overlooks."""
    said = source.kind != "hugging_face" or source.options.get("lower") is not None
    if said or tokens.lower or "lowercase" in cleaning(source.of_tokens()):
        return ()
    return (
        "no file says whether text is lower-cased: it is not, as the vocabulary has capitals; "
        "transformers would, and so does --lower",
    )


def cleaning(source: Source) -> dict[str, Any]:
    """What is done to text before words are cut, under the names of a normalizer.

    Raises:
        UserError: it is nothing that BERT's own code does.
    """
    config, normalizer = settings(source), part(source, "normalizer", "BertNormalizer") or {}
    part(source, "pre_tokenizer", "BertPreTokenizer")
    where = source.folder / "tokenizer.json"
    found = {
        x: chosen(normalizer, x, SWITCH, where)
        for x in (*CLEANING.values(), "clean_text")
        if normalizer.get(x) is not None
    }
    if normalizer and config.get("tokenizer_class") in GENERIC:
        return found
    where = source.folder / "tokenizer_config.json"
    said = {x: chosen(config, x, SWITCH, where) for x in CLEANING if config.get(x) is not None}
    return found | {CLEANING[name]: value for name, value in said.items()}


def vocabulary_of(source: Source) -> list[str]:
    """The pieces of Hugging Face's files, but for added ones; UserError if two files differ."""
    if not source.has("tokenizer.json"):
        return wordpiece.read_vocabulary(source.path("vocab.txt"))
    pieces = vocabulary(source, "WordPiece")
    if source.has("vocab.txt") and wordpiece.read_vocabulary(source.path("vocab.txt")) != pieces:
        raise UserError(f"{source.folder}: vocab.txt and tokenizer.json have not the same pieces")
    wordpiece.check_special(pieces, source.folder / "tokenizer.json")
    return pieces


def longest_word(source: Source) -> int:
    """How many characters a word may have before it is unknown."""
    if not source.has("tokenizer.json"):
        return LONGEST
    where, found = source.folder / "tokenizer.json", model(source, "WordPiece")
    unlike(found, OWN, where)
    return size({"max_input_chars_per_word": LONGEST} | found, "max_input_chars_per_word", where)


def writes(run: Run, kind: str) -> bool:
    """Every kind is of every BERT."""
    return isinstance(run.backbone, Backbone)


def companions(run: Run, folder: Path, kind: str, dtype: str) -> None:
    """Writes the configuration and the vocabulary.

    Raises:
        UserError: the run computes what theirs cannot.
    """
    ours: Any = run.backbone
    only(ours, dict(attention="bi", norm="post", normed_embedding=True))
    pieces = tokens_of(run, wordpiece.Tokenizer, "WordPiece")
    theirs = "hugging_face" if kind == "hugging_face" else "tensorflow"
    named = {own: name for name, own in reversed(ACTIVATIONS[theirs].items())}
    config = dict(
        hidden_act=chosen(vars(ours), "activation", named, run.workdir),
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
            architectures=[architecture(run)],
            model_type="bert",
            layer_norm_eps=ours.epsilon,
            dtype=dtype,
            pad_token_id=pieces.special["pad"],
            position_embedding_type="absolute",
        )
        write_tokens(folder, pieces, ours.L)
    elif ours.epsilon != 1e-12:
        raise UserError(f"model.epsilon={ours.epsilon}: Google's BERT has 1e-12, unchangeable")
    if theirs == "tensorflow":
        usual = {name: x for name, x in wordpiece.USUAL.items() if name != "longest"}
        only(pieces, usual, "tokenizer")
    write_json(folder / KINDS[kind].knows, config)
    wordpiece.write(pieces.pieces[: pieces.base], folder / "vocab.txt")


def architecture(run: Run) -> str:
    """The class of transformers that has the run's heads, and no other."""
    ours: Any = run.backbone
    return ARCHITECTURES[ours.head == "transform", run.config.objective.get("nsp", True)]


def advice(run: Run, kind: str) -> list[str]:
    """What to tell who loads the release."""
    ours: Any = run.backbone
    if kind != "hugging_face" or ours.pooler or architecture(run) != "BertModel":
        return []
    return [
        "the run has no pooler, and transformers would draw one at random: load it by "
        "BertModel.from_pretrained(DIR, add_pooling_layer=False)"
    ]


def write_tokens(folder: Path, pieces: wordpiece.Tokenizer, L: int) -> None:
    """Writes tokenizer.json, and tokenizer_config.json for a class that cuts text as ours."""
    usual = pieces.clean_text and pieces.longest == LONGEST
    write_json(
        folder / "tokenizer_config.json",
        dict(
            tokenizer_class="BertTokenizer" if usual else GENERIC[0],
            do_lower_case=pieces.lower,
            strip_accents=not pieces.keep_accents,
            tokenize_chinese_chars=pieces.handle_chinese_chars,
            model_max_length=L,
            **{f"{name}_token": piece for name, piece in wordpiece.SPECIAL.items()},
        ),
    )
    cls, sep = (wordpiece.SPECIAL[name] for name in ("cls", "sep"))
    whole = pieces.copy_library()
    whole.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(x, pieces.pieces.index(x)) for x in (cls, sep)],
    )
    write_tokenizer(folder, whole, wordpiece.SPECIAL.values())
