"""GPT-1's and GPT-2's vocabularies: two tables of OpenAI's, or Hugging Face's one file."""

from pathlib import Path
from typing import Any

from pretrain.conversion import hugging_face
from pretrain.conversion.systems import Source
from pretrain.data.tokenizers import bpe, byte_bpe, tokenizer_json
from pretrain.data.tokenizers.bpe_files import SAVED
from pretrain.inference.run import Run
from pretrain.runtime.errors import UserError
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
    if kind in SETTINGS:
        settings = SETTINGS[kind] | dict(model_max_length=L)
        write_json(folder / "tokenizer_config.json", settings)
        hugging_face.write_tokenizer(folder, pieces.copy_library(), [MARKS[kind]])
    names = pieces.published if kind == "npz" else SAVED
    pieces.write(folder / names[0], folder / names[1])
