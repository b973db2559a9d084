"""Reads a prepared TFDS dataset ("glue/sst2") without TensorFlow."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from finetune.datasets import Read, files, records
from finetune.datasets.records import Layout
from pretrain.data.corpus import sources
from pretrain.runtime.errors import UserError

HIDDEN = -1  # TFDS's class where a test set keeps its labels to itself


def read(
    path: str,
    *,
    split: str,
    texts: Sequence[str] = ("sentence",),
    label: str = "label",
    tfds_dir: str = "",
    id: str = "",
    labels: Mapping[str, str] | Sequence[str] | None = None,
    number: bool = False,
    skip: Sequence[str] = (),
    strict: bool = True,
    empty: str = "error",
) -> Read:
    """Reads a split ("train", "validation[:10%]"); see `table.read` for the other fields.

    Args:
        path: name[/config][:version].
        texts, label, id: features.
        tfds_dir: the folder it was prepared in; "" for the library's own.

    Raises:
        UserError: it is not prepared there, has no such split or feature, or an example is
            malformed: names the dataset and the example, counted from 0.
    """
    builder = _builder(path, tfds_dir, split)
    # A recipe may name one text without a tuple around it.
    columns = (texts,) if isinstance(texts, str) else tuple(texts)
    layout = Layout(columns, label, id, files.label_names(labels), number, tuple(skip), empty)
    _check_features(builder.info.features, layout, path)
    with sources.explain_errors(f"tfds:{path}"):
        source = builder.as_data_source(split=split)
    if label and _is_hidden(builder.info.features[label], source, label):
        # Labels are the names of classes, of which a hidden one (-1) has none.  Without a label the
        # examples are for prediction.
        layout = dataclasses.replace(layout, label="")
    cells = _make_reader(builder.info.features, layout)
    placed = ((f"tfds:{path}, {split}, example {i}", one) for i, one in enumerate(source))
    return records.examples(placed, layout, cells, strict)


def _builder(path: str, tfds_dir: str, split: str) -> Any:
    import tensorflow_datasets as tfds  # takes seconds, and only this format needs it

    with sources.explain_errors(f"tfds:{path}"):
        builder = tfds.builder(path, data_dir=tfds_dir or None)
    sources.check_prepared(builder, path, split)
    return builder


def _check_features(features: Any, layout: Layout, path: str) -> None:
    for column in layout.columns():
        if column not in features:
            raise UserError(f"tfds:{path} has no feature {column!r}, but {', '.join(features)}")
    for column in layout.texts:
        sources.check_text(features, path, str(column))


def _is_hidden(feature: Any, source: Any, label: str) -> bool:
    """Returns whether a split hides its classes, as its first example shows."""
    return hasattr(feature, "names") and len(source) > 0 and int(source[0][label]) == HIDDEN


def _make_reader(features: Any, layout: Layout) -> Any:
    """Returns a function from a stored example to text and Python numbers."""

    def cells(example: Mapping[str, Any], where: str) -> dict[Any, Any]:
        return {
            column: _value(example[str(column)], features[str(column)], where)
            for column in layout.columns()
        }

    return cells


def _value(value: Any, feature: Any, where: str) -> Any:
    # Numbers of classes depend on the version of the dataset, names do not.
    if hasattr(feature, "names"):
        if not 0 <= value < len(feature.names):
            raise UserError(f"{where}: there is no class {int(value)}")
        return feature.names[value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise UserError(f"{where}: the byte at offset {error.start} is not UTF-8") from error
    return value.item() if hasattr(value, "item") else value
