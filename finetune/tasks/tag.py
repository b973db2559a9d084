"""Tags words with names, parts of speech or chunks, from the state of a word's first token.

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
from finetune.inputs.labels import UNKNOWN, UNSEEN
from finetune.inputs.rows import RowBuilder
from finetune.inputs.tag_set import TagSet
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

    The words of an example with "counts" are those of several texts, of so many words each.
    """

    plain_field = "words"

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
        min_count: int = 0,
        vocabulary: Sequence[str] = (),
        zero_digits: bool = False,
        own_characters: int = 0,
        closed: bool | None = None,
    ):
        """
        Args:
            labels: in order of their ids; none: those of the examples, sorted; with a scheme all
                tags of their types that it has.
            metrics: "accuracy" of words, "f1", "precision", "recall" of entities, "macro_f1" over
                their types; none: with a scheme f1, precision and recall, else accuracy.
            scheme: of `tag_schemes.SCHEMES`, in which the labels mark entities; "": they do not.
            convert_to: the scheme to learn; "": the same.
            strict: only well-formed entities count, see `tagging.entity_counts`.
            piece: the token of a word that predicts its tag, "first" or "last", which alone has
                read the whole word in a causal model.
            min_count: words so frequent in the examples have vectors of their own, of width
                `task.encoder.word_D`; 0: none have.
            vocabulary: these words, in lower case; none: found in the examples.
            zero_digits: their digits are 0 (Peters et al. 2017).
            own_characters: of a word, with its ends, for `task.encoder.characters`; 0: none.
            closed: other labels are refused; False: they count as errors, and their words, with a
                CRF their rows, are left out of the loss; None: refused if `labels` are named.
        """
        self.inputs, self.piece, self.notes = inputs, piece, list[str]()
        self.metrics = tuple(metrics) or (ENTITIES[:3] if scheme else ("accuracy",))
        self.tag_set = TagSet(
            examples, labels, scheme=scheme, convert_to=convert_to, strict=strict, closed=closed
        )
        self.labels, self.strict = self.tag_set.labels, strict
        self._check()
        self.zero_digits, self.own_characters = zero_digits, own_characters
        sentences = [x["words"] for x in examples] if min_count else []
        self.vocabulary = list(vocabulary) or words.list_frequent_words(
            sentences, min_count, zero_digits
        )

    def _check(self) -> None:
        if unknown := [x for x in self.metrics if x not in METRICS]:
            raise UserError(f"task.metrics={unknown[0]!r}: there are {', '.join(METRICS)}")
        if not self.tag_set.scheme and set(self.metrics) & {*ENTITIES}:
            raise UserError("task.metrics: entities are counted with a task.scheme, as 'iob2'")
        if self.piece not in PIECES:
            raise UserError(f"task.piece={self.piece!r} is none of {', '.join(PIECES)}")

    def to_config(self) -> dict[str, Any]:
        return dict(
            labels=self.labels,
            metrics=self.metrics,
            scheme=self.tag_set.scheme,
            convert_to=self.tag_set.learned,
            strict=self.strict,
            piece=self.piece,
            vocabulary=self.vocabulary,
            zero_digits=self.zero_digits,
            own_characters=self.own_characters,
            closed=self.tag_set.unseen.closed,
        )

    def encoder_fields(self) -> dict[str, Any]:
        # One more, which stands for all words that are not among these.
        fields = {"word_V": len(self.vocabulary) + 1} if self.vocabulary else {}
        return fields | ({"char_W": self.own_characters} if self.own_characters else {})

    def build_task(self, backbone, encoder, head: dict, loss: dict) -> "Task":
        """Builds a `Task` with the `Emissions` that `head` describes.

        Keys:
            crf: a sentence's tags are a path of a CRF.
            constrained: only transitions that the scheme allows are predicted.
        """
        fields = {"dropout": 0.1, "constrained": False, **head}
        chain = CRF(len(self.labels)) if fields.pop("crf", False) else None
        constrained = fields.pop("constrained")
        emissions = plugins.construct(Emissions, len(self.labels), **fields)
        # A tuple: the fields of a module are hashed.
        given = emissions, chain, tuple(self.labels), self.tag_set.learned, constrained
        return plugins.construct(Task, backbone, encoder, *given, **loss)

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Builds rows in the system's format, several of a long sentence.

        Returns:
            The arrays of `words.frame_words`; label_BL, UNKNOWN also where there is no word; with a
            vocabulary own_BL, ids of the task's own words, 0 of all others; with own_characters
            own_chars_BLW.
        """
        sentences, last = [x["words"] for x in examples], self.piece == "last"
        ids = [self.tag_set.ids(x) for x in examples]
        counts = [x.get("counts", [len(x["words"])]) for x in examples]
        arrays, notes = words.frame_words(self.inputs, sentences, counts=counts, last=last)
        self.notes += notes + self.tag_set.unseen.notes()
        arrays["label_BL"] = words.scatter_to_words(ids, arrays["word_BL"], UNKNOWN)
        if self.vocabulary:
            # From 1: id 0 is that of all other words.
            word_ids = {word: i for i, word in enumerate(self.vocabulary, 1)}
            ids_of_words = [
                [word_ids.get(words.normalize_word(x, self.zero_digits), 0) for x in sentence]
                for sentence in sentences
            ]
            arrays["own_BL"] = words.scatter_to_words(ids_of_words, arrays["word_BL"], 0)
        if W := self.own_characters:
            arrays["own_chars_BLW"] = words.scatter_characters(sentences, arrays["word_BL"], W)
        return arrays

    def tags(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> list[list[str]]:
        lengths = [len(x["words"]) for x in examples]
        tags = words.gather_from_words(outputs["tag_BL"], outputs["word_BL"], lengths)
        return [[self.labels[i] for i in ids] for ids in tags]

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        pair = self.tags(examples, outputs), [self.tag_set.convert(x) or [] for x in examples]
        scores: dict[str, float] = {}
        if self.tag_set.scheme:
            scores = tagging.entity_scores(*pair, self.tag_set.strict_scheme)
        scores["accuracy"] = tagging.token_accuracy(*pair)
        return {name: scores[name] for name in self.metrics}

    def hits(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> list[bool]:
        """Returns whether each example's tags are all predicted."""
        pairs = zip(self.tags(examples, outputs), examples, strict=True)
        return [tags == self.tag_set.convert(x) for tags, x in pairs]

    def format_predictions(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray]
    ) -> list[dict]:
        return [
            {"words": list(x["words"]), **self.tag_set.format(tags)}
            for x, tags in zip(examples, self.tags(examples, outputs), strict=True)
        ]


class Emissions(nn.Module):
    """Scores each tag at each position: [B, L, D] -> [B, L, C] float32."""

    C: int
    dropout: float
    scale: float = 0.02

    @nn.compact
    def __call__(self, h_BLD, *, train: bool):
        # In float32, as a CRF adds the scores of a whole row.
        h_BLD = Dropout(self.dropout)(h_BLD, train=train).astype(jnp.float32)
        w_DC = params.param(
            self, "w_DC", params.normal(self.scale), (h_BLD.shape[-1], self.C), decay=True
        )
        return h_BLD @ w_DC + params.param(self, "bias_C", params.zeros, (self.C,), decay=False)


class Task(nn.Module):
    """Predicts a tag for each word, trained one by one or as the path of a row.

    Attributes:
        emissions: from states to scores of the tags.
        chain: a CRF (`modules.heads.crf`) that scores paths; None: tags are independent.
        labels, scheme: the tags, and the scheme in which they mark entities; "": they do not.
        constrained: only transitions that the scheme allows are predicted.
    """

    backbone: nn.Module | None
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
        # An unseen label is in no loss, as it has no logit, but a miss in the accuracy.
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
        known_BL, label_BL = number_BL >= 0, jnp.maximum(number_BL, 0)
        # A path through an unseen tag has no probability to raise.
        weight_B = weight_B * ~(number_BL == UNSEEN).any(1)
        return {"loss": self.chain(emissions_BLC, label_BL, known_BL, weights_B=weight_B)}

    def predict(self, batch):
        """Computes tags, which count only at the words' places, and these places."""
        (emissions_BLC, _), word_BL = self.score_tags(batch, train=False), batch["word_BL"]
        if self.chain or self.constrained:
            tag_BL, _ = viterbi(emissions_BLC, self._transitions(), word_BL)
        else:
            tag_BL = emissions_BLC.argmax(-1)
        return {"tag_BL": tag_BL, "word_BL": word_BL}

    def _transitions(self) -> Chain:
        # Those that the scheme forbids are excluded.
        C = len(self.labels)
        # All transitions alike, so that the search finds each word's best tag that is allowed.
        even = Chain(jnp.zeros(C), jnp.zeros(C), jnp.zeros((C, C)))
        chain = self.chain.chain() if self.chain else even
        if not self.constrained:
            return chain
        allowed = tag_schemes.allowed_transitions(self.labels, self.scheme)
        return forbid(chain, Chain(*map(jnp.asarray, allowed)))

    def flops(self, B: int, L: int) -> float:
        return encoders.training_flops(self.backbone, B, L)
