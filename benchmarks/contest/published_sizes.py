"""Lists the published sizes that are timed on one GPU, and who trains beside us.

Batches of 32 rows take ours 10 to 17 GiB of a card of 80 GB, by its compiler.  Attention's dropout
keeps faster kernels from being taken: BERT and XLNet run with and without it, and with plain
products in the place of our own kernel.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

OURS = "benchmarks.contest.ours"
GPT2, BERT, XLNET, ELMO = (f"benchmarks.peers.{x}" for x in ("gpt2", "bert", "xlnet", "elmo"))
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Entry(NamedTuple):
    """A contender of a contest.

    Attributes:
        name: in the table, and of its file.
        module: that serves it, see `worker`.
        variant: of the module's.
        changes: of the contest's recipe, by dotted name.
        compile: a mode of torch.compile; "": PyTorch runs operation by operation.
        dtype: of a peer's products; "": the recipe's.
    """

    name: str
    module: str = OURS
    variant: str = ""
    changes: Mapping[str, Any] = NOTHING
    compile: str = ""
    dtype: str = ""


class Contest(NamedTuple):
    """A recipe, and those who train it.

    Attributes:
        recipe: its name.
        changes: of the recipe, for all.
        entries: in the order in which they run; the first is the measure of the others.
    """

    recipe: str
    changes: Mapping[str, Any]
    entries: tuple[Entry, ...]


LOOP = {"execution.unroll": 1}  # over the layers
PLAIN = {"execution.attention_form": "plain"}  # products, not our own kernel
NO_DROPOUT = {"model.attention_dropout": 0.0}
PADDED = {"model.V": 50304}  # rows of the logits are aligned; ours does so inside of the softmax
TUNED = "max-autotune-no-cudagraphs"

CONTESTS = {
    "gpt2": Contest(
        "gpt2:124m",
        # The peers know no documents.
        {"batches.B": 32, "objective.attend_across_documents": True},
        (
            Entry("ours"),
            Entry("ours_documents", changes={"objective.attend_across_documents": False}),
            Entry("ours_loop", changes=LOOP),
            Entry("hf", GPT2, "hf"),
            Entry("hf_compiled", GPT2, "hf", compile="default"),
            Entry("sdpa", GPT2, "sdpa", PADDED),
            Entry("sdpa_compiled", GPT2, "sdpa", PADDED, "default"),
            Entry("sdpa_tuned", GPT2, "sdpa", PADDED, TUNED),
        ),
    ),
    "bert": Contest(
        "bert:large",
        {"batches.B": 32},
        (
            Entry("ours"),
            Entry("ours_plain", changes=PLAIN),
            Entry("ours_no_dropout", changes=NO_DROPOUT),
            Entry("ours_loop", changes=LOOP),
            Entry("hf_compiled", BERT, "hf", compile="default"),
            Entry("gathered", BERT, "gathered"),
            Entry("gathered_compiled", BERT, "gathered", compile="default"),
            Entry("gathered_no_dropout", BERT, "gathered", NO_DROPOUT, "default"),
        ),
    ),
    "xlnet": Contest(
        "xlnet:base",
        # The peer reads no row backwards.
        {"batches.B": 32, "batches.bidirectional": False},
        (
            Entry("ours"),
            Entry("ours_plain", changes=PLAIN),
            Entry("ours_no_dropout", changes=NO_DROPOUT),
            Entry("ours_loop", changes=LOOP),
            Entry("hf", XLNET, "hf"),
            Entry("hf_compiled", XLNET, "hf", compile="default"),
        ),
    ),
    "elmo": Contest(
        "elmo:original",
        {},
        (
            Entry("ours"),
            Entry("nnlstm", ELMO, "nnlstm"),
            Entry("nnlstm_float16", ELMO, "nnlstm", dtype="float16"),
            Entry("nnlstm_compiled", ELMO, "nnlstm", compile="default"),
        ),
    ),
}
