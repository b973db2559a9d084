"""Vectors of sentences in one file, made block by block: a killed job goes on behind the last.

An .npy or .parquet is as `vector_tables` says; any other is HDF5, as AllenNLP's `elmo` command has
it: a dataset for each sentence, "0", "1", ..., and "sentence_to_index", JSON in a string.  Each has
attributes "tokens", JSON of the strings that its rows are of, and "text", JSON of the sentence,
which older files lack.
"""

import contextlib
import itertools
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pretrain.formats import hdf5
from pretrain.inference import vector_tables
from pretrain.inference.vector_tables import INDEX
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import beside
from pretrain.runtime.json_files import read_json, write_json
from pretrain.runtime.locks import lock_workdir
from pretrain.runtime.run_config import diff_configs


class Blocks:
    """The folder of finished blocks of a file that is yet to be; `done` counts them."""

    def __init__(self, out: Path, made_from: Mapping[str, Any]):
        """`made_from`: JSON of all that the vectors depend on; the caller holds the folder.

        Raises:
            UserError: the blocks that are there depend on something else.
        """
        self.out, self.folder, self.made_from = out, partial_folder(out), dict(made_from)
        plan = self.folder / "made_from.json"
        if plan.exists() and (changed := diff_configs(read_json(plan), self.made_from)):
            lines = "".join(f"\n  {line}" for line in changed)
            raise UserError(
                f"{self.folder} was begun from something else; go back to that, or delete the "
                f"folder to begin anew:{lines}"
            )
        write_json(plan, self.made_from, private=True)
        self.done = len(self._list_finished())

    @contextlib.contextmanager
    def create_block(self) -> Iterator[h5py.File]:
        """Yields the file of the next block, which counts once it is closed without an error."""
        # HDF5 does not survive a death in mid-write, so until the end each block is a file of its
        # own, there under its name only when it is whole.
        # With leading zeros names sort as numbers do.
        path = self.folder / f"{self.done:08}.h5"
        with hdf5.create_file(path) as file:
            yield file
        self.done += 1

    def join(self, sentences: Iterable[str]) -> None:
        """Makes the file out of all blocks, and removes them.

        Args:
            sentences: all, in order.

        Raises:
            UserError: the file cannot be written, or there are not as many sentences as vectors.
        """
        texts = self._count_off(sentences)
        if vector_tables.is_table(self.out):
            self._write_table(texts)
        else:
            self._write_hdf5(texts)
        # Last: until the whole file has its name, the blocks are all there is.
        shutil.rmtree(self.folder)

    def _count_off(self, sentences: Iterable[str]) -> Iterator[str]:
        N = 0
        for path in self._list_finished():
            with h5py.File(path) as block:
                N += len(block)
        for number, sentence in itertools.zip_longest(range(N), sentences):
            if number is None or sentence is None:
                more = "more" if number is None else "fewer"
                raise UserError(
                    f"{self.out}: {N:,} sentences have vectors, and the text has {more}"
                )
            yield sentence

    def _write_table(self, texts: Iterator[str]) -> None:
        paths = self._list_finished()
        N, D = 0, 0
        for path in paths:
            with h5py.File(path) as block:
                N, D = N + len(block), next(iter(block.values())).shape[0]

        def blocks() -> Iterator[vector_tables.Block]:
            for path in paths:
                with h5py.File(path) as block:
                    vectors_ND = np.stack([block[name][()] for name in sorted(block, key=int)])
                yield list(itertools.islice(texts, len(vectors_ND))), vectors_ND
            next(texts, None)  # raises where there are more

        vector_tables.write_table(self.out, blocks(), N, D, self.made_from)

    def _write_hdf5(self, texts: Iterator[str]) -> None:
        with hdf5.create_file(self.out) as file:
            for path in self._list_finished():
                with h5py.File(path) as block:
                    for name in block:
                        # Copied as stored, attributes too, without reading into arrays.
                        h5py.h5o.copy(block.id, name.encode(), file.id, name.encode())
            # Equal sentences have one key in the index, the last one's, as AllenNLP's does.
            index = {}
            for i, text in enumerate(texts):
                index[text] = str(i)
                # Equal tokens may be of several texts: "A" and "a" where capitals are dropped.
                file[str(i)].attrs["text"] = json.dumps(text)
            file.create_dataset(INDEX, (1,), h5py.string_dtype())[0] = json.dumps(index)
            file.attrs["made_from"] = json.dumps(self.made_from)

    def _list_finished(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.h5"))


@contextlib.contextmanager
def open_blocks(out: Path, made_from: Mapping[str, Any]) -> Iterator[Blocks]:
    """Locks and opens the blocks of this file, for this process alone.

    Raises:
        UserError: another process is writing them, they are of something else, or the folder
            cannot be written.
    """
    with lock_workdir(partial_folder(out)):
        yield Blocks(out, made_from)


def partial_folder(out: Path) -> Path:
    return beside(out, ".partial")


def add_sentence(file: h5py.File, number: int, tokens: list[str], vectors: np.ndarray) -> None:
    """Writes a sentence's vectors, and beside them its tokens."""
    dataset = file.create_dataset(str(number), data=vectors)
    # An attribute: a plain reader does not see it, and no length is too long for JSON.
    dataset.attrs["tokens"] = json.dumps(tokens)
