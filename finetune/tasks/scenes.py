"""Ranks candidates by their texts, by numbers, and by what the user chose, each scene in its way.

    BERT's vector of (query, candidate)   --+
    a transformer over the user's history --+-- layers of all scenes -- layers of the own -- score
    numbers of the candidate              --+

Meituan's BERT for search ("The exploration and practice of BERT in the core ranking of Meituan
search", 2020, in Chinese), its joint training.  Without the text it is the ranking model that ran
before, of which BERT's score is one of the numbers: see `scores` of `finetune.datasets.clicks`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import modules
from finetune.encoders.given import Given
from finetune.inputs.options import flatten_options
from finetune.inputs.rows import RowBuilder
from finetune.tasks import rank
from finetune.tasks.classify import build_classifier
from finetune.tasks.option_scores import mask_missing, weigh_rows
from modules import plugins
from modules.heads.scenes import SceneScorer
from modules.layers import pooling
from modules.masks import Mask
from pretrain.runtime.errors import UserError

PADDING, UNKNOWN_ITEM = 0, 1  # ids below those of the items of a history


class TaskData(rank.TaskData):
    """Turns examples with "features", "scene" and "history" into rows, and outputs into rankings.

    Attributes:
        scenes: in order of their ids.
        items: of histories, the commonest first.
        mean_F, deviation_F: of the numbers in training, which are standardized.
    """

    example_fields = (*rank.TaskData.example_fields, "features", "scene")

    def __init__(
        self,
        inputs: RowBuilder,
        examples: Sequence[dict],
        *,
        scenes: Sequence[str] = (),
        history: int = 0,
        min_count: int = 1,
        items: Sequence[str] = (),
        mean: Sequence[float] = (),
        deviation: Sequence[float] = (),
        **fields: Any,
    ):
        """
        Args:
            scenes: none: those of the examples, sorted.
            history: items of a history that are read, the latest; 0: none.
            min_count: items that occur so often in the examples are known.
            items: these; none: found in the examples.
            mean, deviation: of the numbers; none: those of the examples.
            fields: of `rank.TaskData`.
        """
        plugins.check_fields(rank.TaskData, fields, inputs, examples)
        super().__init__(inputs, examples, **fields)
        self.scenes = list(scenes) or sorted({x["scene"] for x in examples})
        self.history = history
        counts = Counter(item for x in examples for item in x.get("history", ()) if history)
        # The first to occur leads among equal counts: the order depends on the data alone.
        common = [item for item, count in counts.most_common() if count >= min_count]
        self.items = list(items) or common
        rows = [row for x in examples for row in x.get("features", [])]
        self.mean_F = np.array(mean if rows == [] else np.mean(rows, 0), np.float64)
        spread_F = np.array(deviation if rows == [] else np.std(rows, 0), np.float64)
        # A number that never varies says nothing, and is not divided by.
        self.deviation_F = np.where(spread_F > 0, spread_F, 1.0)

    def to_config(self) -> dict[str, Any]:
        return super().to_config() | dict(
            scenes=self.scenes,
            history=self.history,
            items=self.items,
            mean=self.mean_F.tolist(),
            deviation=self.deviation_F.tolist(),
        )

    def build_task(self, backbone, encoder, head: dict, loss: dict) -> "Task":
        """Builds a `Task`; `head` has the fields of `Classifier` and of `SceneScorer`, and more.

        Keys:
            text: whether texts are read.
            U: units of a layer, and width of what has read the history.
            layers, heads: of the history's reader.
        """
        fields = {"text": True, "U": 64, "layers": 1, "heads": 4} | head
        is_read, U, layers, heads = (fields.pop(name) for name in ("text", "U", "layers", "heads"))
        dropout = fields.get("dropout", 0.1)
        scorer = plugins.construct(SceneScorer, len(self.scenes), U=U, dropout=dropout)
        reader = self._build_reader(U, layers, heads, dropout)
        parts: tuple = (None, Given(False), None)
        if is_read:
            parts = backbone, encoder, build_classifier(backbone, encoder, self.inputs, U, **fields)
        losses = rank.name_loss(loss)
        return plugins.construct(Task, *parts, scorer=scorer, reader=reader, **losses)

    def _build_reader(self, U: int, layers: int, heads: int, dropout: float) -> nn.Module | None:
        if not self.history:
            return None
        if U % heads:
            raise plugins.FieldError(f"head.heads={heads} does not divide head.U={U}")
        V = len(self.items) + UNKNOWN_ITEM + 1
        sizes: dict[str, Any] = dict(V=V, D=U, H=heads, K=U // heads, N=layers, F=4 * U)
        rates: dict[str, Any] = dict(dropout=dropout, attention_dropout=dropout)
        return modules.build("transformer", L=self.history, normed_embedding=True, **sizes, **rates)

    def _arrays(self, groups: Sequence[rank.CandidateGroup]) -> dict[str, np.ndarray]:
        """Builds the arrays of `rank`, and features_BOF, scene_B, history_BM, the latest first."""
        B, F = len(groups), len(self.mean_F)
        features_BOF = np.zeros((B, self.options, F), np.float32)
        history_BM = np.full((B, self.history), PADDING, np.int32)
        # Two ids are taken: that of padding, and that of an item which training did not show.
        ids = {item: i for i, item in enumerate(self.items, UNKNOWN_ITEM + 1)}
        for b, (example, numbers) in enumerate(groups):
            values = [self._features(example, i) for i in numbers]
            features_BOF[b, : len(numbers)] = (values - self.mean_F) / self.deviation_F
            # Files have a history in order of time; the latest items say most of what is wanted.
            latest = example.get("history", [])[::-1][: self.history]
            history_BM[b, : len(latest)] = [ids.get(item, UNKNOWN_ITEM) for item in latest]
        scene_B = np.array([self._scene_id(x) for x, _ in groups], np.int32)
        given = dict(features_BOF=features_BOF, scene_B=scene_B)
        given |= {"history_BM": history_BM} if self.history else {}
        return super()._arrays(groups) | given

    def _features(self, example: dict, number: int) -> list[float]:
        values = example["features"][number]
        if len(values) != len(self.mean_F):
            raise UserError(
                f"{example['where']}: {len(values)} numbers of a candidate, not {len(self.mean_F)}"
            )
        return values

    def _scene_id(self, example: dict) -> int:
        if example["scene"] not in self.scenes:
            known = ", ".join(map(repr, self.scenes))
            raise UserError(f"{example['where']}: scene {example['scene']!r} is none of {known}")
        return self.scenes.index(example["scene"])


class Task(rank.Task):
    """Scores candidates by all that is known of them, trained on their order.

    Attributes:
        head: from a row's states to U numbers; None: no text is read.
        scorer: from all that is joined to a score.
        reader: of the history, a backbone over items; None: no history is read.
    """

    scorer: Any = None  # it never is: fields above have defaults
    reader: Any = None

    def score(self, batch, *, train: bool):
        rows, options = flatten_options(batch)
        rows |= {"weight_B": weigh_rows(batch)}
        h_BLD, parts = None, [batch["features_BOF"]]
        if self.head is not None:
            h_BLD = self.encoder(rows, train=train)
            text_BU = self.head(h_BLD, rows["valid_BL"], weight_B=rows["weight_B"], train=train)
            parts.append(text_BU.reshape(-1, options, text_BU.shape[-1]))
        if self.reader is not None:
            chosen_BU = self._read_history(batch["history_BM"], train=train)
            parts.append(jnp.repeat(chosen_BU[:, None], options, 1))
        x_BOD = jnp.concatenate(parts, -1)
        logits_BO = self.scorer(x_BOD, batch["scene_B"], train=train)
        return mask_missing(logits_BO, batch), h_BLD, rows

    def _read_history(self, history_BM, *, train: bool):
        """Computes the mean state of each history, zeros of one without items: [B, U]."""
        valid_BM = history_BM != PADDING
        # One place at least, as the attention over nothing would be NaN.
        mask = Mask(lengths_B=jnp.maximum(valid_BM.sum(1), 1))
        h_BMU = self.reader(history_BM, mask=mask, train=train).h
        return pooling.mean(h_BMU, valid_BM).astype(jnp.float32)
