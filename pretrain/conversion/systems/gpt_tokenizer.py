"""GPT-1's and GPT-2's vocabularies: two tables of OpenAI's, or Hugging Face's one file."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokenizers as library
from tokenizers import processors

from pretrain.conversion import hugging_face
from pretrain.conversion.systems import Source
from pretrain.data.tokenizers import bpe, byte_bpe, tokenizer_json
from pretrain.data.tokenizers.bpe_files import SAVED
from pretrain.inference.run import Run
from pretrain.inference.text_format import format_name, load_format
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import write_file
from pretrain.runtime.json_files import write_json

GPT1 = ("hugging_face_gpt1", "openai_npy")  # the kinds of releases; the others are of GPT-2
SETTINGS: dict[str, dict[str, Any]] = {  # what their tokenizer_config.json says
    "hugging_face": dict(
        tokenizer_class="GPT2Tokenizer",
        add_prefix_space=False,
        split_special_tokens=True,  # no text is the end of a document
        **dict.fromkeys(("bos_token", "eos_token", "unk_token"), byte_bpe.EOD),
    ),
    "hugging_face_gpt1": dict(
        tokenizer_class=hugging_face.GENERIC_CLASSES[0],  # that of their GPT-1 cuts words otherwise
        split_special_tokens=True,
        unk_token=bpe.UNK,
    ),
}
MARKS = {"hugging_face": byte_bpe.EOD, "hugging_face_gpt1": bpe.UNK}


def find_class(kind: str) -> type[bpe.Tokenizer] | type[byte_bpe.Tokenizer]:
    return bpe.Tokenizer if kind in GPT1 else byte_bpe.Tokenizer


def read_tokenizer(source: Source) -> bpe.Tokenizer | byte_bpe.Tokenizer:
    """Reads the vocabulary of a release, or of the folder that the option "vocabulary" names.

    Raises:
        UserError: there is none, or text is prepared for it otherwise than here.
    """
    kind = find_class(source.kind)
    source = source.with_tokenizer_folder()
    if kind is byte_bpe.Tokenizer:
        hugging_face.check_byte_level(source)
    for names in (kind.published, SAVED):
        if all(source.has(name) for name in names):
            more = source.read_json("added_tokens.json") if source.has("added_tokens.json") else {}
            return kind.read(source.find_file(names[0]), source.find_file(names[1]), more)
    if source.has(tokenizer_json.NAME):
        return kind.of_json(hugging_face.read_tokenizer_json(source))
    pairs = [" and ".join(names) for names in (kind.published, SAVED)]
    raise UserError(
        f"{source.folder} has no vocabulary, neither {' nor '.join(pairs)} nor tokenizer.json: "
        "--vocabulary=DIR says which folder has them"
    )


def note_rules(source: Source, tokens: bpe.Tokenizer | byte_bpe.Tokenizer) -> tuple[str, ...]:
    """Returns what to say where Hugging Face's code cuts text into words otherwise than ours."""
    if source.kind != "hugging_face_gpt1":
        return ()
    theirs = hugging_face.read_tokenizer_json(source.with_tokenizer_folder()).content
    ours = tokenizer_json.parse(tokens.copy_library().to_str(), "ours").content
    if all(theirs.get(x) == ours[x] for x in ("normalizer", "pre_tokenizer")):
        return ()
    return (
        "text is cut into words by rules of ours, which stand for ftfy and spaCy: "
        "transformers cuts some texts otherwise",
    )


def check_tokenizer(run: Run, kind: str) -> None:
    if not isinstance(run.tokenizer, find_class(kind)):
        name = find_class(kind).name
        raise UserError(f"the tokenizer of such a release is {name}: this run has another")
    if run.tokenizer.whole:
        raise UserError(
            f"the last {run.tokenizer.whole} pieces of this run's vocabulary are whole words, as "
            "tokens.extend adds them: such a release cuts all words into pieces"
        )


def write_tokenizer(run: Run, folder: Path, kind: str, L: int) -> None:
    """Writes the vocabulary, and for Hugging Face's code how text is prepared."""
    pieces: Any = run.tokenizer
    new = list_new_pieces(run) if kind in SETTINGS else []
    if kind in SETTINGS:
        settings = SETTINGS[kind] | dict(model_max_length=L)
        if new:
            # The class of their GPT-2 would leave them out.
            settings |= dict(tokenizer_class=hugging_face.GENERIC_CLASSES[0], padding_side="right")
        if "objective" not in run.config:
            settings |= dict(pad_token=pieces.pieces[pieces.special["eod"]])
        write_json(folder / "tokenizer_config.json", settings)
        hugging_face.write_tokenizer(folder, pieces.copy_library(), [MARKS[kind], *new])
    if not new:  # which the other two files have no place for
        names = pieces.published if kind == "npz" else SAVED
        pieces.write(folder / names[0], folder / names[1])


def list_new_pieces(run: Run) -> list[str]:
    """Lists names for the rows that fine-tuning put behind the vocabulary's, and for empty ones."""
    if "objective" in run.config:
        return []
    new = load_format(format_name(run.config)).new_tokens
    empty = run.backbone.V - len(new) - run.tokenizer.V
    names = [*(f"unused{i}" for i in range(empty * bool(new))), *new]
    # A run that was fine-tuned, exported and imported has pieces of these names.
    taken = {*run.tokenizer.pieces}
    return [next(x for x in spell_names(name) if x not in taken) for name in names]


def spell_names(name: str) -> Iterator[str]:
    yield f"<{name}>"
    yield from (f"<{name}{i}>" for i in itertools.count(2))


def write_frame(run: Run, folder: Path) -> None:
    """Has a tokenizer.json frame rows as the task's are, between the marks of fine-tuning."""
    text_format = load_format(format_name(run.config))
    if not text_format.new_tokens:
        return
    path, count = folder / tokenizer_json.NAME, len(text_format.new_tokens)
    names = dict(zip(text_format.new_tokens, list_new_pieces(run)[-count:], strict=True))
    before, between, after = (
        " ".join(names[mark] for mark in marks)
        for marks in (text_format.before, text_format.between, text_format.after)
    )
    whole = library.Tokenizer.from_file(str(path))
    ids = {name: whole.token_to_id(name) for name in names.values()}
    whole.post_processor = processors.TemplateProcessing(
        single=f"{before} $A {after}",
        pair=f"{before} $A {between} $B {after}",
        special_tokens=list(ids.items()),
    )
    write_file(path, whole.to_str(pretty=True).encode())
