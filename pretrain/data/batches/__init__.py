"""Batch layouts: what batch `step` is, read from a prepared corpus.

Adding one is one file here, or a module of your own on PYTHONPATH, that defines a dataclass
`BatchLayout(TextLayout)`.  Its fields are those of the recipe's `batches` section:

    layout = BatchLayout(B=8, L=512, ...)                 fields are checked, `shapes()` are known
    layout = layout.bind(corpus, documents, shuffle=True)           `batch(step, rows)` can be read

Every batch holds `weight_B` float32 (1 for a row of text, 0 for filler) and the tokens, int32:
`tokens_BL`, or `tokens_BZL` where rows are read in both directions.  `lanes` continue row by row
(XLNet), `windows` are running text in any order (GPT, RoBERTa), `pairs` two segments (BERT),
`bidirectional` continue from either end at once (ELMo), `bptt` by windows of varying length
(AWD-LSTM); `phases` puts two layouts in turn.  Where a run has several tasks, each array bears
its task's name, see `name_arrays`; a batch has those of one task or of more.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from modules import plugins
from pretrain.runtime.errors import UserError

if TYPE_CHECKING:
    import jax

Batch = dict[str, np.ndarray]
Shapes = dict[str, "jax.ShapeDtypeStruct"]


class BatchShapes(Protocol):
    """The arrays of a batch, known without reading one: enough to compile a step."""

    B: int  # rows of a batch, over all hosts
    L: int  # tokens of a row

    def shapes(self) -> Shapes:
        """Returns shape and dtype of each array of a batch, for all B rows."""
        ...


class BatchLayout(BatchShapes, Protocol):
    """Batches as a pure function of the seed and the step.

    Attributes:
        shuffle: each epoch is read in another order, for ever; else the layout ends after one.
        steps_per_epoch: batches of an epoch.
    """

    shuffle: bool
    steps_per_epoch: int

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """Reads these rows of batch `step`, counted from 0 over all epochs."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """Returns, as JSON, everything that a position depends on, to compare on resume."""
        ...


def describe_arrays(names: str, shape: tuple[int, ...], dtype: Any) -> Shapes:
    """Returns one shape and dtype under each of the names, which spaces separate."""
    import jax  # not above: whoever only reads batches needs no JAX, as PyTorch's peers do

    return {name: jax.ShapeDtypeStruct(shape, dtype) for name in names.split()}


def name_arrays(task: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Names arrays as those of one of several tasks, "sst1/tokens_BL"; "": there is one task."""
    return {f"{task}/{name}" if task else name: x for name, x in arrays.items()}


def split_tasks(batch: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Inverts `name_arrays`: the arrays by task, whose name is "" where there is one task."""
    by_task: dict[str, dict[str, Any]] = {}
    for name, x in batch.items():
        task, _, array = name.rpartition("/")
        by_task.setdefault(task, {})[array] = x
    return by_task


def describe_batch(batch: Batch) -> str:
    """Says in words how large a batch is; every shape that is compiled for says something else."""
    sizes = " x ".join(map(str, max(batch.values(), key=np.size).shape))
    of_tasks = "".join(f" of {task}" for task in split_tasks(batch) if task)
    return f"{sizes} numbers{of_tasks}"


def configure(name: str, **fields: Any):
    """Builds a layout that is bound to no text yet: its shapes are known, its batches are not.

    Args:
        name: a file here, or a module of your own.
        fields: of its `BatchLayout`.

    Raises:
        plugins.FieldError: there is no such layout, or the fields do not fit it.
    """
    return plugins.construct(plugins.load(__name__, name, "BatchLayout").BatchLayout, **fields)


def build(name: str, corpus, *, split: str = "train", **fields: Any) -> BatchLayout:
    """Builds the layout of one split of a corpus.

    Training reads the split in an order drawn anew each epoch, for ever; any other split is read
    once, in the order of the corpus.

    Args:
        split: "train", "held_out", or "all" of a corpus without either.

    Raises:
        plugins.FieldError: there is no such layout, or the fields do not fit it.
        UserError: there is no such split, or the fields do not fit the text.
    """
    if split not in corpus.splits:
        raise UserError(f"split={split!r}: this corpus has {', '.join(corpus.splits)}")
    layout = configure(name, **fields)
    return layout.bind(corpus, corpus.splits[split], shuffle=split == "train")
