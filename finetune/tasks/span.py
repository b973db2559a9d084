"""Questions about a text, answered by a span of it, or by that it has no answer.

Devlin et al. 2019, sections 4.2 and 4.3; with an end that knows its start, Yang et al. 2019.  A
text that is too long for a row is read in windows; what is written of an answer is cut from the
text as it was given.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from finetune import encoders
from finetune.inputs.question_windows import Context, Piece, Questions
from finetune.inputs.rows import RowBuilder
from finetune.inputs.sliding_windows import touched
from finetune.metrics import question_answering
from finetune.tasks import Defaults
from modules import plugins
from modules.heads import span
from modules.metrics import Sum
from pretrain.runtime.errors import UserError

TOP = {False: 20, True: 5}  # starts and ends of a row, by whether the end knows its start


class Answer(NamedTuple):
    """What was found for a question.

    Attributes:
        texts: the likeliest first; none where no span was possible.
        scores: log-probabilities, but for a constant.
        none: the probability that there is no answer.
    """

    texts: list[str]
    scores: list[float]
    none: float


class TaskData(Defaults):
    """Turns examples {"id", "question", "context", "answers", "impossible"} into rows, and back."""

    def __init__(
        self,
        inputs: RowBuilder,
        examples: Sequence[dict],
        *,
        stride: int = 128,
        max_query: int = 64,
        max_answer: int = 30,
        conditional: bool | None = None,
        unanswerable: bool | None = None,
        threshold: float = -1.0,
        n_best: int = 1,
    ):
        """
        Args:
            stride, max_query: of `Questions`.
            max_answer: tokens of an answer that is told.
            conditional: the end knows its start; None: where the text format says so (XLNet).
            unanswerable: some questions have no answer (SQuAD 2.0); None: if one in training has
                none.  Where there are none, a held-out one all the same counts as an error.
            threshold: of the probability that there is none, above which none is told; below 0:
                the one that does best on dev, and 0.5 before that is known.
            n_best: so many answers of each question are told, with probabilities; 1: no list.
        """
        own = inputs.format.conditional_end if conditional is None else conditional
        has = any(x["impossible"] for x in examples) if unanswerable is None else unanswerable
        self.inputs, self.questions = inputs, Questions(inputs, stride, max_query)
        self.notes, self._is_noted = self.questions.notes, False
        self.fields = dict(
            stride=stride,
            max_query=max_query,
            max_answer=max_answer,
            conditional=own,
            unanswerable=has,
            threshold=threshold,
            n_best=n_best,
        )
        self.conditional, self.unanswerable = own, has
        self.threshold = threshold if threshold >= 0 else 0.5
        self.max_answer, self.n_best = max_answer, n_best
        for name in ("stride", "max_query", "max_answer", "n_best"):
            if self.fields[name] < 1:
                raise UserError(f"task.{name}={self.fields[name]}: it is to be 1 at least")

    def to_config(self) -> dict[str, Any]:
        """Returns the fields of another `TaskData` of the same task."""
        return dict(self.fields)

    def tune(self, values: Mapping[str, float | None]) -> None:
        """Takes the threshold that did best on dev, unless the recipe has said one."""
        best = values.get("dev/best_f1_thresh")
        if self.fields["threshold"] < 0 and best is not None:
            self.threshold = self.fields["threshold"] = float(best)

    def build_task(self, backbone, encoder, head: dict, loss: dict) -> "Task":
        """Builds a `Task` whose head is independent or conditional; the loss has no fields."""
        own = {"dropout": 0.1, **head}
        top = own.pop("top", TOP[self.conditional])
        kind = span.HEADS[self.conditional]
        return plugins.construct(
            Task, backbone, encoder, plugins.construct(kind, **own), top, **loss
        )

    # --- to rows ---------------------------------------------------------------------------------

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Makes rows in the system's format, in the order of the examples, several of a long one.

        context_BL: where an answer may be.  null_B: the position that stands for no answer, [CLS]
        or what takes its part.  start_B, end_B: the answer's, or null_B where this window has it
        not whole; -1 where it is not known.
        """
        contexts = self.questions.contexts(examples)
        pieces = list(self.questions.pieces(examples, contexts))
        made = self.inputs.arrays([piece.row for piece in pieces])
        answers = [self._answer(x, contexts[x["context"]]) for x in examples]
        context_BL, null_B = np.zeros_like(made["valid_BL"]), np.zeros(len(pieces), np.int32)
        targets_B2 = np.zeros((len(pieces), 2), np.int32)
        for i, piece in enumerate(pieces):
            context_BL[i, piece.first : piece.first + len(piece.window)] = True
            null_B[i] = self.questions.null(piece.row)
            targets_B2[i] = _target(answers[piece.example], piece, null_B[i])
        start_B, end_B = targets_B2.T.copy()
        self._note_unanswerable(examples)
        return made | dict(context_BL=context_BL, null_B=null_B, start_B=start_B, end_B=end_B)

    def _note_unanswerable(self, examples: Sequence[dict]) -> None:
        places = [x["where"] for x in examples if x["impossible"]]
        if places and not self.unanswerable and not self._is_noted:
            self._is_noted = True
            what = "a question without an answer, which training never showed"
            self.notes.append(f"{places[0]}: {what}: each counts as an error")

    def _answer(self, example: dict, context: Context) -> tuple[int, int] | None:
        """Finds the tokens of the first answer; (-1, -1): there is none, None: it is not known."""
        if example["impossible"]:
            return -1, -1
        if not example["answers"]:
            return None
        first = example["answers"][0]
        start, end = first["start"], first["start"] + len(first["text"])
        found = touched(context.starts, context.ends, start, end)
        if found is None:
            self.questions.note(f"{example['where']}: no token is in the answer {first['text']!r}")
        return found

    # --- and back --------------------------------------------------------------------------------

    def answers(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray], count: int = 1
    ) -> list[Answer]:
        """Finds the best `count` different answers of each example, over its windows."""
        contexts = self.questions.contexts(examples)
        found: list[list[tuple[float, int, int]]] = [[] for _ in examples]
        none_N = np.full(len(examples), np.inf)
        for i, piece in enumerate(self.questions.pieces(examples, contexts)):
            row = {name: x[i] for name, x in outputs.items()}
            found[piece.example] += _possible(piece, row, self.max_answer)
            none_N[piece.example] = min(none_N[piece.example], row["none_B"])
        pairs = zip(examples, found, none_N.tolist(), strict=True)
        return [
            self._best_answers(x["context"], contexts[x["context"]], possible, none, count)
            for x, possible, none in pairs
        ]

    def _best_answers(
        self,
        text: str,
        context: Context,
        possible: list[tuple[float, int, int]],
        none: float,
        count: int,
    ) -> Answer:
        best: dict[str, float] = {}
        for score, start, end in sorted(possible, key=lambda x: -x[0]):
            if len(best) == count:
                break
            if answer := text[context.starts[start] : context.ends[end]].strip():
                best.setdefault(answer, score)
        odds = none if self.conditional else none - max(best.values(), default=-np.inf)
        return Answer([*best], [*best.values()], float(_sigmoid(odds)))

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """Computes the official script's: SQuAD 2.0's if some are unanswerable, else 1.1's."""
        found = self.answers(examples, outputs)
        best = [next(iter(answer.texts), "") for answer in found]
        truth = [[answer["text"] for answer in x["answers"]] for x in examples]
        if not self.unanswerable:
            right = [answer if texts else None for answer, texts in zip(best, truth, strict=True)]
            return question_answering.squad1(right, [texts or [""] for texts in truth])
        none = [answer.none for answer in found]
        return question_answering.squad2(best, truth, none, self.threshold)

    def format_predictions(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray]
    ) -> list[dict]:
        """Says the answer of each example, "" for none, and how likely there is none."""
        return [
            self._line(example, answer)
            for example, answer in zip(
                examples, self.answers(examples, outputs, self.n_best), strict=True
            )
        ]

    def _line(self, example: dict, answer: Answer) -> dict:
        silent = not answer.texts or (self.unanswerable and answer.none > self.threshold)
        line = {
            "id": example["id"],
            "prediction_text": "" if silent else answer.texts[0],
            "no_answer_probability": answer.none,
        }
        if self.n_best == 1:
            return line
        share = np.exp(np.array(answer.scores) - max(answer.scores, default=0.0))
        pairs = zip(answer.texts, (share / share.sum()).tolist(), strict=True)
        return line | {"n_best": [{"text": x, "probability": p} for x, p in pairs]}


def _target(answer: tuple[int, int] | None, piece: Piece, null: int) -> tuple[int, int]:
    """Returns the answer's positions in the row."""
    if answer is None:
        return -1, -1
    first, last = answer
    if first not in piece.window or last not in piece.window:
        return null, null
    offset = piece.first - piece.window.start
    return first + offset, last + offset


def _possible(piece: Piece, row: dict[str, Any], longest: int) -> list[tuple[float, int, int]]:
    """Lists (score, first, last token of the context) of this row's permitted candidates."""
    start_O, end_O = (row[name].astype(int) - piece.first for name in ("start_BO", "end_BO"))
    n = len(piece.window)
    may_O = (start_O >= 0) & (start_O <= end_O) & (end_O < n) & (end_O - start_O < longest)
    may_O[may_O] = piece.own[start_O[may_O]]
    chosen = zip(row["score_BO"][may_O], start_O[may_O], end_O[may_O], strict=True)
    begin = piece.window.start
    return [(float(score), begin + int(s), begin + int(e)) for score, s, e in chosen]


def _sigmoid(x: float) -> float:
    return float(np.exp(-np.logaddexp(0.0, -x)))


class Task(nn.Module):
    """Starts and ends of answers, trained by their cross entropy.

    Attributes:
        head: of `modules.heads.span`.
        top: likeliest starts, and ends, of a row that become candidates.
    """

    backbone: nn.Module
    encoder: nn.Module
    head: nn.Module
    top: int = 20

    def __call__(self, batch, *, train: bool):
        weight_B = batch["weight_B"] * (batch["start_B"] >= 0)
        start_B, end_B = (jnp.maximum(batch[name], 0) for name in ("start_B", "end_B"))
        h_BLD = self.encoder(batch, train=train)
        log = self.head(h_BLD, batch["context_BL"], batch["null_B"], start_B, train=train)
        each_B = -(_at(log.start_BL, start_B) + _at(log.end_BL, end_B)) / 2
        if log.no_answer_logit_B is not None:
            none_B = (start_B == batch["null_B"]).astype(jnp.float32)
            each_B += optax.sigmoid_binary_cross_entropy(log.no_answer_logit_B, none_B) / 2
        hits_B = (log.start_BL.argmax(-1) == start_B) & (log.end_BL.argmax(-1) == end_B)
        total = weight_B.sum()
        metrics = {
            "loss": Sum((each_B * weight_B).sum(), total, train=True),
            "accuracy": Sum((hits_B * weight_B).sum(), total, "share"),
        }
        return self.encoder.add_losses(metrics, h_BLD, batch, train=train)

    def predict(self, batch):
        """Computes candidates: see `span.Candidates`."""
        h_BLD = self.encoder(batch, train=False)
        return self.head.candidates(h_BLD, batch["context_BL"], batch["null_B"], self.top)._asdict()

    def flops(self, B: int, L: int) -> float:
        """Estimates the operations of a training step."""
        return encoders.training_flops(self.backbone, B, L)


def _at(x_BL, place_B):
    return jnp.take_along_axis(x_BL, place_B[:, None], axis=1)[:, 0]
