"""A tag for each word: names, parts of speech, chunks; told from the word's first piece.

Devlin et al. 2019, section 5.3; with a chain of tags, Lample et al. 2016 (arXiv 1603.01360); on
ELMo, Peters et al. 2018.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from finetune import encoders
from finetune.inputs import words
from finetune.inputs.labels import UNKNOWN, UNSEEN, Unseen
from finetune.inputs.rows import RowBuilder
from finetune.metrics import tag_schemes, tagging
from finetune.tasks import Defaults
from modules import plugins
from modules.heads.crf import CRF, Chain, forbid, viterbi
from modules.layers import params
from modules.layers.dropout import Dropout
from modules.metrics import Sum
from pretrain.runtime.errors import UserError

ENTITIES = ("f1", "precision", "recall", "macro_f1")
METRICS = (*ENTITIES, "accuracy")
PIECES = ("first", "last")


class TaskData(Defaults):
    """Turns examples {"words": [...], "labels": [...]} into rows, and outputs into tags.

    How words become rows, and where in them their tags are told: see `finetune.inputs.words`.
    """

    def __init__(
        self,
        inputs: RowBuilder,
        examples: Sequence[dict],
        *,
        labels: Sequence[str] = (),
        metrics: Sequence[str] = (),
        scheme: str = "",
        convert_to: str = "",
        strict: bool = False,
        piece: str = "first",
        own: int = 0,
        vocabulary: Sequence[str] = (),
        closed: bool | None = None,
    ):
        """
        Args:
            labels: in order of their ids; none: those of the examples, sorted; with a scheme all
                that it can write of their types.
            metrics: "accuracy" of words, "f1", "precision", "recall" of entities, "macro_f1" over
                their types; none: f1, precision and recall with a scheme, else accuracy.
            scheme: of `tag_schemes.SCHEMES`, in which the labels write entities; "": they do not.
            convert_to: the scheme that is learned; "": the same.
            strict: only soundly written entities count, see `tagging.entity_counts`.
            piece: the one that tells a word's tag, "first" or "last" (which alone has seen the
                whole word where states know only what came before).
            own: words that occur so often in the examples have vectors of the task's own,
                `task.encoder.word_D`; 0: none have.
            vocabulary: these words, in lower case.
            closed: a label that is none of these is refused; False: it counts as an error, and its
                word, with a CRF its row, is left out of the loss; None: refused if `labels`
                are named.
        """
        self.inputs, self.scheme, self.learned = inputs, scheme, convert_to or scheme
        self.metrics = tuple(metrics) or (ENTITIES[:3] if scheme else ("accuracy",))
        self.strict, self.piece, self.notes = strict, piece, list[str]()
        self.unseen = Unseen(bool(labels) if closed is None else closed)
        self._check(convert_to)
        self.labels = list(labels) or self._found(examples)
        if len(self.labels) < 2:
            raise UserError(f"there are {len(self.labels)} labels in the training set: need two")
        self.number = {label: i for i, label in enumerate(self.labels)}
        sentences = [x["words"] for x in examples] if own else []
        self.vocabulary = list(vocabulary) or words.frequent(sentences, own)

    def _check(self, convert_to: str) -> None:
        """Raises UserError where fields do not go together."""
        for name in filter(None, (self.scheme, convert_to)):
            tag_schemes.get_scheme(name)
        if convert_to and not self.scheme:
            raise UserError(f"task.convert_to={convert_to!r}: task.scheme is to name the files'")
        if unknown := [x for x in self.metrics if x not in METRICS]:
            raise UserError(f"task.metrics={unknown[0]!r}: there are {', '.join(METRICS)}")
        if not self.scheme and set(self.metrics) & {*ENTITIES}:
            raise UserError("task.metrics: entities are counted with a task.scheme, as 'iob2'")
        if self.piece not in PIECES:
            raise UserError(f"task.piece={self.piece!r} is none of {', '.join(PIECES)}")

    def _found(self, examples: Sequence[dict]) -> list[str]:
        """The labels to learn of these examples."""
        found = {label for x in examples for label in self._tags(x) or ()}
        if not self.scheme:
            return sorted(found)
        types = sorted({tag_schemes.parse_tag(label).type for label in found - {"O"}})
        letters = tag_schemes.get_scheme(self.learned).written.replace("O", "")
        return ["O"] + [f"{x}-{type_}" if type_ else x for type_ in types for x in letters]

    def to_config(self) -> dict[str, Any]:
        """Returns the fields of another `TaskData` of the same task."""
        return dict(
            labels=self.labels,
            metrics=self.metrics,
            scheme=self.scheme,
            convert_to=self.learned,
            strict=self.strict,
            piece=self.piece,
            vocabulary=self.vocabulary,
            closed=self.unseen.closed,
        )

    def encoder_fields(self) -> dict[str, Any]:
        """Returns how many words have vectors of their own, where any have."""
        return {"word_V": len(self.vocabulary) + 1} if self.vocabulary else {}

    def build_task(self, backbone, encoder, head: dict, loss: dict) -> "Task":
        """Builds a `Task`; `head` has the fields of `Emissions`, and `crf` and `constrained`."""
        own = {"dropout": 0.1, **head}
        chain = CRF(len(self.labels)) if own.pop("crf", False) else None
        constrained = own.pop("constrained", False)
        emissions = plugins.construct(Emissions, len(self.labels), **own)
        labels = tuple(self.labels)
        return plugins.construct(
            Task, backbone, encoder, emissions, chain, labels, self.learned, constrained, **loss
        )

    def _tags(self, example: dict) -> list[str] | None:
        """In the scheme that is learned; UserError, with the place, if they break their own."""
        tags, where = example["labels"], example["where"]
        if tags is None:
            return None
        if len(tags) != len(example["words"]):
            raise UserError(f"{where}: {len(tags)} labels for {len(example['words'])} words")
        return tag_schemes.convert(tags, self.scheme, self.learned, where) if self.scheme else tags

    def _ids(self, example: dict) -> list[int]:
        """Numbers of the labels, UNKNOWN or UNSEEN.  UserError: there can be no such label."""
        tags, where = self._tags(example), example["where"]
        if tags is None:
            return [UNKNOWN] * len(example["words"])
        return [
            self.number[tag] if tag in self.number else self.unseen.number(tag, self.labels, where)
            for tag in tags
        ]

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Makes rows in the system's format, several of a long sentence.

        Besides what `words.rows` makes: label_BL, UNKNOWN also where there is no word; and own_BL,
        0 for a word that has no vector of its own, where there are any.
        """
        sentences, last = [x["words"] for x in examples], self.piece == "last"
        ids = [self._ids(x) for x in examples]
        made, notes = words.rows(self.inputs, sentences, last=last)
        self.notes += notes + self.unseen.notes()
        made["label_BL"] = words.spread(ids, made["word_BL"], UNKNOWN)
        if self.vocabulary:
            own = {word: i for i, word in enumerate(self.vocabulary, 1)}
            numbers = [[own.get(word.lower(), 0) for word in each] for each in sentences]
            made["own_BL"] = words.spread(numbers, made["word_BL"], 0)
        return made

    def tags(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> list[list[str]]:
        """Returns the tags of each example's words, in the scheme that was learned."""
        lengths = [len(x["words"]) for x in examples]
        found = words.gathered(outputs["tag_BL"], outputs["word_BL"], lengths)
        return [[self.labels[i] for i in ids] for ids in found]

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """Computes the task's metrics."""
        pair = self.tags(examples, outputs), [self._tags(x) or [] for x in examples]
        found: dict[str, float] = {}
        if self.scheme:
            found = tagging.entity_scores(*pair, self.learned if self.strict else None)
        found["accuracy"] = tagging.token_accuracy(*pair)
        return {name: found[name] for name in self.metrics}

    def format_predictions(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray]
    ) -> list[dict]:
        """Says the labels of each example's words, as its file would write them; the entities."""
        return [
            {"words": list(x["words"]), **self._line(tags)}
            for x, tags in zip(examples, self.tags(examples, outputs), strict=True)
        ]

    def _line(self, tags: list[str]) -> dict:
        if not self.scheme:
            return {"labels": tags}
        found = tag_schemes.entities(tags, self.learned if self.strict else None)
        labels = tag_schemes.to_tags(found, len(tags), self.scheme)
        return {"labels": labels, "entities": [e._asdict() for e in found]}


class Emissions(nn.Module):
    """Scores of each tag at each position, [B, L, D] -> [B, L, C] float32."""

    C: int
    dropout: float
    scale: float = 0.02

    @nn.compact
    def __call__(self, h_BLD, *, train: bool):
        h_BLD = Dropout(self.dropout)(h_BLD, train=train).astype(jnp.float32)
        w_DC = params.param(
            self, "w_DC", params.normal(self.scale), (h_BLD.shape[-1], self.C), decay=True
        )
        return h_BLD @ w_DC + params.param(self, "bias_C", params.zeros, (self.C,), decay=False)


class Task(nn.Module):
    """A tag for each word, trained each for itself, or all of a row as a path.

    Attributes:
        emissions: from states to scores of the tags.
        chain: a CRF (`modules.heads.crf`) that scores paths; None: each tag stands for itself.
        labels, scheme: the tags, and the scheme in which they write entities; "": they do not.
        constrained: only what the scheme allows is predicted, whatever was learned.
    """

    backbone: nn.Module
    encoder: nn.Module
    emissions: Emissions
    chain: Any = None
    labels: tuple[str, ...] = ("O", "B")
    scheme: str = ""
    constrained: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.constrained and not self.scheme:
            raise UserError("task.head.constrained: task.scheme is to say what may follow what")

    def __call__(self, batch, *, train: bool):
        emissions_BLC, h_BLD = self.score_tags(batch, train=train)
        losses = self._path_loss if self.chain else self._word_losses
        metrics = losses(emissions_BLC, batch["label_BL"], batch["weight_B"])
        return self.encoder.add_losses(metrics, h_BLD, batch, train=train)

    def score_tags(self, batch, *, train: bool):
        """Computes (emissions [B, L, C], states)."""
        h_BLD = self.encoder(batch, train=train)
        return self.emissions(h_BLD, train=train), h_BLD

    def _word_losses(self, emissions_BLC, number_BL, weight_B):
        known_BL, label_BL = number_BL >= 0, jnp.maximum(number_BL, 0)
        missed_BL = (number_BL == UNSEEN) * weight_B[:, None]
        weight_BL = known_BL * weight_B[:, None]
        log_BLC = jax.nn.log_softmax(emissions_BLC)
        log_BL = jnp.take_along_axis(log_BLC, label_BL[..., None], axis=2)[..., 0]
        hits_BL = emissions_BLC.argmax(-1) == label_BL
        weight = weight_BL.sum()
        return {
            "loss": Sum(-(log_BL * weight_BL).sum(), weight, train=True),
            "hits": Sum((hits_BL * weight_BL).sum(), weight + missed_BL.sum(), "share"),
        }

    def _path_loss(self, emissions_BLC, number_BL, weight_B):
        """Computes the loss of every row's tags; a path with an unseen tag has none."""
        known_BL, label_BL = number_BL >= 0, jnp.maximum(number_BL, 0)
        weight_B = weight_B * ~(number_BL == UNSEEN).any(1)
        return {"loss": self.chain(emissions_BLC, label_BL, known_BL, weights_B=weight_B)}

    def predict(self, batch):
        """Computes the tags at the words' places, elsewhere any; and where these are."""
        (emissions_BLC, _), word_BL = self.score_tags(batch, train=False), batch["word_BL"]
        if self.chain or self.constrained:
            tag_BL, _ = viterbi(emissions_BLC, self._transitions(), word_BL)
        else:
            tag_BL = emissions_BLC.argmax(-1)
        return {"tag_BL": tag_BL, "word_BL": word_BL}

    def _transitions(self) -> Chain:
        """Returns what was learned of what follows what, within what the scheme allows."""
        C = len(self.labels)
        nothing = Chain(jnp.zeros(C), jnp.zeros(C), jnp.zeros((C, C)))
        chain = self.chain.chain() if self.chain else nothing
        if not self.constrained:
            return chain
        allowed = tag_schemes.allowed_transitions(self.labels, self.scheme)
        return forbid(chain, Chain(*map(jnp.asarray, allowed)))

    def flops(self, B: int, L: int) -> float:
        """Estimates the operations of a training step."""
        return encoders.training_flops(self.backbone, B, L)
