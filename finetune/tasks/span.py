"""Answers questions about a text by a span of it, or by none.

Devlin et al. 2019, sections 4.2 and 4.3; with an end conditioned on its start, Yang et al. 2019.  A
text too long for a row is read in windows.  An answer is cut out of the text as it was given.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from finetune import encoders
from finetune.inputs.question_windows import Context, Questions, QuestionWindow
from finetune.inputs.rows import RowBuilder
from finetune.inputs.sliding_windows import find_tokens
from finetune.metrics import question_answering
from finetune.tasks import Defaults
from modules import plugins
from modules.heads import span
from modules.metrics import Sum
from pretrain.runtime.errors import UserError

TOP = {False: 20, True: 5}  # starts and ends of a row, by whether the end depends on its start


class Answer(NamedTuple):
    """The best answers to a question.

    Attributes:
        texts: the likeliest first; none where no span is permitted.
        scores: log-probabilities, up to a constant.
        none: the probability that there is no answer.
    """

    texts: list[str]
    scores: list[float]
    none: float


class AnswerFinder:
    """Finds answers among the spans that the rows of an example score.

    Attributes:
        questions: that the rows were made by.
        max_answer: most tokens of an answer.
        conditional: a row says by itself how likely there is no answer.
    """

    def __init__(self, questions: Questions, max_answer: int, conditional: bool):
        self.questions, self.max_answer, self.conditional = questions, max_answer, conditional

    def find(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray], count: int = 1
    ) -> list[Answer]:
        """Finds the best `count` different answers of each example, over its windows."""
        contexts = self.questions.encode_contexts(examples)
        candidates: list[list[tuple[float, int, int]]] = [[] for _ in examples]
        none_N = np.full(len(examples), np.inf)
        for i, window in enumerate(self.questions.iter_windows(examples, contexts)):
            row = {name: x[i] for name, x in outputs.items()}
            candidates[window.example] += _permitted(window, row, self.max_answer)
            # As run_squad.py: one window that shows an answer is enough.
            none_N[window.example] = min(none_N[window.example], row["none_B"])
        triples = zip(examples, candidates, none_N.tolist(), strict=True)
        return [
            self._rank(x["context"], contexts[x["context"]], permitted, none, count)
            for x, permitted, none in triples
        ]

    def _rank(
        self,
        text: str,
        context: Context,
        permitted: list[tuple[float, int, int]],
        none: float,
        count: int,
    ) -> Answer:
        best: dict[str, float] = {}
        for score, start, end in sorted(permitted, key=lambda x: -x[0]):
            if len(best) == count:
                break
            # Two spans may cut out one text: the likelier of them stands for it.
            if answer := text[context.starts[start] : context.ends[end]].strip():
                best.setdefault(answer, score)
        # XLNet's head says how likely there is none; BERT's scores none and spans on one scale.
        odds = none if self.conditional else none - max(best.values(), default=-np.inf)
        return Answer([*best], [*best.values()], float(_sigmoid(odds)))


class TaskData(Defaults):
    """Turns examples {"id", "question", "context", "answers", "impossible"} into rows, and back."""

    example_fields = ("question", "context")

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
            max_answer: most tokens of an answer.
            conditional: the end depends on its start; None: as the text format has it (XLNet).
            unanswerable: some questions have no answer (SQuAD 2.0); None: if one in training has
                none.  If False, a held-out question without an answer counts as an error.
            threshold: probability of no answer above which none is given; below 0: the best on
                dev, and 0.5 until that is known.
            n_best: answers listed for each question, with probabilities; 1: no list.
        """
        # As the authors of the format scored it, whose numbers are to be met.
        if conditional is None:
            conditional = inputs.format.conditional_end
        if unanswerable is None:
            unanswerable = any(x["impossible"] for x in examples)
        self.inputs, self.questions = inputs, Questions(inputs, stride, max_query)
        self.notes, self._is_noted = self.questions.notes, False
        self.fields = dict(
            stride=stride,
            max_query=max_query,
            max_answer=max_answer,
            conditional=conditional,
            unanswerable=unanswerable,
            threshold=threshold,
            n_best=n_best,
        )
        self.conditional, self.unanswerable = conditional, unanswerable
        # The even odds, until dev has told a better one.
        self.threshold = threshold if threshold >= 0 else 0.5
        self.finder = AnswerFinder(self.questions, max_answer, conditional)
        self.n_best = n_best
        for name in ("stride", "max_query", "max_answer", "n_best"):
            if self.fields[name] < 1:
                raise UserError(f"task.{name}={self.fields[name]}: it is to be 1 at least")

    def to_config(self) -> dict[str, Any]:
        return dict(self.fields)

    def tune(self, values: Mapping[str, float | None]) -> None:
        # The one that did best on dev, unless the recipe has said one.
        best = values.get("dev/best_f1_thresh")
        if self.fields["threshold"] < 0 and best is not None:
            self.threshold = self.fields["threshold"] = float(best)

    def build_task(self, backbone, encoder, head: dict, loss: dict) -> "Task":
        fields = {"dropout": 0.1, **head}
        top = fields.pop("top", TOP[self.conditional])
        own_head = plugins.construct(span.HEADS[self.conditional], **fields)
        return plugins.construct(Task, backbone, encoder, own_head, top, **loss)

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Builds rows in the system's format, in the order of the examples, several of a long one.

        Returns:
            The arrays of `RowBuilder.arrays`; context_BL, where an answer may be; null_B, the
            position that stands for no answer; start_B and end_B, the answer's, null_B in a window
            without the whole answer, -1 where it is not known.
        """
        contexts = self.questions.encode_contexts(examples)
        windows = list(self.questions.iter_windows(examples, contexts))
        arrays = self.inputs.arrays([window.row for window in windows])
        answers = [self._answer(x, contexts[x["context"]]) for x in examples]
        context_BL, null_B = np.zeros_like(arrays["valid_BL"]), np.zeros(len(windows), np.int32)
        targets_B2 = np.zeros((len(windows), 2), np.int32)
        for i, window in enumerate(windows):
            context_BL[i, window.first : window.first + len(window.window)] = True
            null_B[i] = self.questions.find_null(window.row)
            targets_B2[i] = _target(answers[window.example], window, null_B[i])
        start_B, end_B = targets_B2.T.copy()
        self._note_unanswerable(examples)
        return arrays | dict(context_BL=context_BL, null_B=null_B, start_B=start_B, end_B=end_B)

    def _note_unanswerable(self, examples: Sequence[dict]) -> None:
        places = [x["where"] for x in examples if x["impossible"]]
        if places and not self.unanswerable and not self._is_noted:
            self._is_noted = True
            text = "a question without an answer, which training never showed"
            self.notes.append(f"{places[0]}: {text}: each counts as an error")

    def _answer(self, example: dict, context: Context) -> tuple[int, int] | None:
        """Finds the tokens of the first answer; (-1, -1): there is none, None: it is not known."""
        if example["impossible"]:
            return -1, -1
        if not example["answers"]:
            return None
        # The loss is of one answer, as in run_squad.py; the metrics count any that is given.
        first = example["answers"][0]
        start, end = first["start"], first["start"] + len(first["text"])
        tokens = find_tokens(context.starts, context.ends, start, end)
        if tokens is None:
            self.questions.note(f"{example['where']}: no token is in the answer {first['text']!r}")
        return tokens

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """Computes the official metrics, of SQuAD 2.0 if some are unanswerable, else of 1.1."""
        answers = self.finder.find(examples, outputs)
        best = [next(iter(answer.texts), "") for answer in answers]
        truth = [[answer["text"] for answer in x["answers"]] for x in examples]
        if not self.unanswerable:
            # SQuAD 1.1 knows no question without an answer: it counts as an error.
            right = [answer if texts else None for answer, texts in zip(best, truth, strict=True)]
            return question_answering.squad1(right, [texts or [""] for texts in truth])
        none = [answer.none for answer in answers]
        return question_answering.squad2(best, truth, none, self.threshold)

    def format_predictions(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray]
    ) -> list[dict]:
        answers = self.finder.find(examples, outputs, self.n_best)
        return [self._format(x, answer) for x, answer in zip(examples, answers, strict=True)]

    def _format(self, example: dict, answer: Answer) -> dict:
        # Nor is there one where no permitted span has any text.
        silent = not answer.texts or (self.unanswerable and answer.none > self.threshold)
        line = {
            "id": example["id"],
            "prediction_text": "" if silent else answer.texts[0],
            "no_answer_probability": answer.none,
        }
        if self.n_best == 1:
            return line
        # Less the highest, so that none overflows.
        share = np.exp(np.array(answer.scores) - max(answer.scores, default=0.0))
        pairs = zip(answer.texts, (share / share.sum()).tolist(), strict=True)
        return line | {"n_best": [{"text": x, "probability": p} for x, p in pairs]}


def _target(answer: tuple[int, int] | None, window: QuestionWindow, null: int) -> tuple[int, int]:
    if answer is None:
        return -1, -1
    first, last = answer
    # As run_squad.py: a window with half an answer is trained to have none.
    if first not in window.window or last not in window.window:
        return null, null
    offset = window.first - window.window.start
    return first + offset, last + offset


def _permitted(
    window: QuestionWindow, row: dict[str, Any], longest: int
) -> list[tuple[float, int, int]]:
    """Lists (score, first, last token of the context) of this row's permitted candidates."""
    start_O, end_O = (row[name].astype(int) - window.first for name in ("start_BO", "end_BO"))
    n = len(window.window)
    may_O = (start_O >= 0) & (start_O <= end_O) & (end_O < n) & (end_O - start_O < longest)
    # Elsewhere another window shows the start with more context.
    may_O[may_O] = window.is_best[start_O[may_O]]
    chosen = zip(row["score_BO"][may_O], start_O[may_O], end_O[may_O], strict=True)
    begin = window.window.start
    return [(float(score), begin + int(s), begin + int(e)) for score, s, e in chosen]


def _sigmoid(x: float) -> float:
    # 1 / (1 + exp(-x)), whose exp may overflow.
    return float(np.exp(-np.logaddexp(0.0, -x)))


class Task(nn.Module):
    """Predicts starts and ends of answers, trained by their cross entropy.

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
        # Not known is -1: whichever position is read for it weighs nothing.
        start_B, end_B = (jnp.maximum(batch[name], 0) for name in ("start_B", "end_B"))
        h_BLD = self.encoder(batch, train=train)
        log = self.head(h_BLD, batch["context_BL"], batch["null_B"], start_B, train=train)
        # The mean of both, and half of the third loss, as run_squad.py of BERT and of XLNet.
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
        return encoders.training_flops(self.backbone, B, L)


def _at(x_BL, place_B):
    return jnp.take_along_axis(x_BL, place_B[:, None], axis=1)[:, 0]
