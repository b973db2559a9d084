"""Reads and writes what Hugging Face's folders have in common: a config.json, a tokenizer.json."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers as library

from pretrain.conversion import config_fields
from pretrain.conversion.systems import Source
from pretrain.data.tokenizers import tokenizer_json
from pretrain.data.tokenizers.tokenizer_json import TokenizerJson
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import write_file

GPT = {  # other names that a model's own code takes, and the one that it has
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
XLNET = {
    "n_token": "vocab_size",
    "hidden_size": "d_model",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
ACTIVATIONS = {  # their names -> ours
    "gelu_new": "gelu",  # the tanh form
    "gelu_pytorch_tanh": "gelu",
    "gelu_python_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu_accurate": "gelu",
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "relu": "relu",
}
# By whose code it is: to the authors of BERT and XLNet "gelu" is the tanh form.
ACTIVATIONS_BY_CODE = {
    "tensorflow": {"gelu": "gelu", "relu": "relu"},
    "hugging_face": ACTIVATIONS,
}
GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")  # take tokenizer.json as it is
# Without it their code leaves segments out, and with them XLNet's whole term for segments.
INPUT_NAMES = ["input_ids", "token_type_ids", "attention_mask"]


def read_config(source: Source, aliases: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Reads what config.json says, under the names that such a model's own code has.

    Args:
        aliases: other names that it takes, and the one that it has.

    Raises:
        UserError: it says two things under two names of one.
    """
    given = source.read_json("config.json")
    # Newer files repeat a number under its general name: both are taken, if they agree.
    aliases = aliases or {}
    config = {name: value for name, value in given.items() if name not in aliases}
    for alias, name in aliases.items():
        if alias in given and config.setdefault(name, given[alias]) != given[alias]:
            raise UserError(
                f"{source.folder / 'config.json'}: {alias} is {given[alias]!r} and {name} is "
                f"{config[name]!r}, two names of one number: leave one of them out"
            )
    return config


def read_tokenizer_json(source: Source) -> TokenizerJson:
    """Reads the folder's tokenizer.json; one without content if there is none."""
    path = source.folder / tokenizer_json.NAME
    return tokenizer_json.read(path) if path.exists() else TokenizerJson({}, path)


def read_tokenizer_config(source: Source) -> dict[str, Any]:
    """Reads the folder's tokenizer_config.json; {} if there is none."""
    return source.read_json("tokenizer_config.json") if source.has("tokenizer_config.json") else {}


def read_added_tokens(source: Source) -> dict[int, dict[str, Any]]:
    """Reads, by id, the pieces that the folder's files add to a vocabulary, with their flags.

    Raises:
        UserError: an entry is none, or two files differ.
    """
    pieces = read_tokenizer_json(source).read_added()
    config = read_tokenizer_config(source).get("added_tokens_decoder") or {}
    older = source.read_json("added_tokens.json") if source.has("added_tokens.json") else {}
    try:
        entries = [(int(i), x) for i, x in config.items()]
        known = {*pieces, *(i for i, _ in entries)}
        # The older file names a piece and nothing else: the others, where they know it, say more.
        entries += [(i, {"content": x}) for x, i in older.items() if i not in known]
        for i, entry in entries:
            piece = tokenizer_json.parse_added(entry)
            if pieces.setdefault(i, piece)["content"] != piece["content"]:
                raise UserError(f"{source.folder}: piece {i} is added twice, and differs")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{source.folder}: its added tokens are not as they should be") from error
    return dict(sorted(pieces.items()))


def join_added_tokens(source: Source, pieces: list[str]) -> tuple[list[str], list[dict[str, Any]]]:
    """Joins the added pieces to a vocabulary.

    Returns:
        the vocabulary; those of the added pieces that are found in text.

    Raises:
        UserError: their ids do not go on from the vocabulary's, or are other pieces'.
    """
    joint, extra = list(pieces), []
    for i, piece in read_added_tokens(source).items():
        if i == len(joint):
            joint.append(piece["content"])
        elif not 0 <= i < len(pieces) or pieces[i] != piece["content"]:
            raise UserError(
                f"{source.folder}: {piece['content']!r} is added as piece {i}, and there are "
                f"{len(joint)} pieces before it, of which it is none"
            )
        # A special piece of the vocabulary stands for itself, never for text that spells it.
        if i >= len(pieces) or not piece["special"]:
            extra.append(piece)
    return joint, extra


def write_tokenizer(folder: Path, tokenizer: library.Tokenizer, special: Iterable[str]) -> None:
    """Writes a tokenizer.json, in which these pieces are special."""
    tokenizer.add_special_tokens([library.AddedToken(x, special=True) for x in special])
    write_file(folder / tokenizer_json.NAME, tokenizer.to_str(pretty=True).encode())


def check_byte_level(source: Source) -> None:
    """Refuses files that prepare text for a byte-level BPE otherwise than GPT-2's code does."""
    # The file's own way without the rule that cuts words is another one's, of several rules.
    plain = {"add_prefix_space": False, "use_regex": True}
    config_fields.require_equal(
        read_tokenizer_config(source),
        {"add_prefix_space": False},
        source.folder / "tokenizer_config.json",
    )
    whole = read_tokenizer_json(source)
    config_fields.require_equal(whole.content, {"normalizer": None}, Path(whole.where))
    rules = whole.read_part("pre_tokenizer", "ByteLevel") or {}
    config_fields.require_equal(rules, plain, Path(whole.where))
