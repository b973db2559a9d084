"""Uses a trained run from Python: vectors, texts, masks, scores and predictions."""

import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from finetune import job
from finetune.prediction.input_formats import list_columns
from finetune.prediction.predictor import Predictor
from finetune.several.parts import list_sections
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.embedder import Embedder
from pretrain.inference.generator import Writer, join_pieces
from pretrain.inference.layer_selection import parse_pool
from pretrain.inference.run import Run
from pretrain.inference.sampling import Sampler
from pretrain.inference.token_scorer import Filling, Score, TokenScorer
from pretrain.inference.trained_run import load_run
from pretrain.runtime.errors import UserError
from quartet.arguments import check_options, describe, list_texts
from quartet.examples import list_examples
from quartet.wording import explain_to_callers

Texts = str | Sequence[str]


class TrainedRun:
    """A run in a workdir, whose weights are read when they are first needed.

    Each method takes a text or several, and returns one result or a list of them.  What it cannot
    take is refused by a UserError, which says what was given.

    Attributes:
        run: its recipe, tokenizer and backbone.
    """

    def __init__(self, workdir: str | pathlib.Path):
        """Opens the run; raises a UserError if the folder holds none."""
        if not isinstance(workdir, str | os.PathLike):
            raise UserError(f"load(...) takes a run's folder, and was given {describe(workdir)}")
        self.workdir = pathlib.Path(workdir).expanduser().absolute()
        self.run: Run = load_run(self.workdir, needs_backbone=False)
        # Each reads the weights at its first use, and is used again.
        self._embedder = functools.cache(self._open_embedder)
        self._writer = functools.cache(self._open_writer)
        self._predictor = functools.cache(self._open_predictor)

    def __repr__(self) -> str:
        return f"quartet.load({str(self.workdir)!r})"

    @functools.cached_property
    def layout(self) -> Layout:
        return Layout(make_mesh())

    @explain_to_callers()
    @check_options
    def embed(
        self,
        texts: Texts,
        *,
        pool: str = "mean",
        layers: str = "",
        mix: str = "",
        normalize: bool = False,
        cut: bool = True,
    ) -> Any:
        """Computes a vector of each text, or of each of its tokens.

        Args:
            pool: "mean", "first", "last", "last_two", "first_last" or "pooler"; "": a vector for
                every token.
            layers, mix: see `parse_pool`.
            normalize: vectors are divided by their length.
            cut: longer texts than the model reads lose their end; False: they are an error.

        Returns:
            [D] of one text and [N, D] of several; without a pool [tokens, D], or a list of these.
            Of several layers side by side, as of layers="all", [layers, D], [N, layers, D], and
            [layers, tokens, D].
        """
        rows = list_texts("embed(...)", texts)
        # Of none the shape is that of one.
        sentences = self._embedder(pool, layers, mix, normalize, cut).read(rows or [""])
        vectors = [sentence.vectors for sentence in sentences]
        if isinstance(texts, str):
            return vectors[0]
        return (np.stack(vectors) if pool else vectors)[: len(rows)]

    @explain_to_callers()
    @check_options
    def similarity(self, first: Texts, second: Texts, *, pool: str = "mean") -> Any:
        """Computes the cosines of texts' vectors, [N, M]; of two texts a number."""
        if not pool:
            raise UserError("similarity(pool=''): a text is compared by one vector, as of 'mean'")
        # Both are looked at before the first is read.
        rows = [list_texts("similarity(...)", texts) for texts in (first, second)]
        a_ND, b_MD = (self.embed(texts, pool=pool, normalize=True) for texts in rows)
        cosines_NM = a_ND @ b_MD.T
        is_pair = isinstance(first, str) and isinstance(second, str)
        return float(cosines_NM[0, 0]) if is_pair else cosines_NM

    @explain_to_callers()
    @check_options
    def generate(
        self,
        prompts: Texts = "",
        *,
        tokens: int = 100,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        stops: Texts = (),
        seed: int = 0,
        bos: bool = True,
    ) -> Any:
        """Continues prompts; returns the texts behind them.

        Args:
            temperature, top_k, top_p: see `Sampler`; a temperature of 0 takes the likeliest token.
            tokens, stops, seed, bos: see `Writer.generate`.
        """
        rows, ends = list_texts("generate(...)", prompts), list_texts("generate(stops=...)", stops)
        writer = self._writer(Sampler(temperature, top_k, top_p))
        pieces = writer.generate(rows, tokens=tokens, stops=ends, seed=seed, bos=bos)
        return unwrap(join_pieces(pieces, len(rows)), prompts)

    @explain_to_callers()
    @check_options
    def fill(self, texts: Texts, *, top: int = 5) -> list[list[Filling]] | Any:
        """Predicts the likeliest tokens at each mask, spelled [MASK], of texts."""
        return unwrap(self._scorer.fill(list_texts("fill(...)", texts), top), texts)

    @explain_to_callers()
    def score(self, texts: Texts) -> Score | list[Score]:
        """Computes the log-likelihood of texts, token by token; see `TokenScorer`."""
        return unwrap(self._scorer.score(list_texts("score(...)", texts)), texts)

    @explain_to_callers()
    @check_options
    def predict(self, examples: Any, *, task: str = "") -> Any:
        """Predicts examples by a fine-tuned run, each as a dict.

        Args:
            examples: a text or several; of pairs, tuples of texts; or dicts, with the columns of
                the table that the run was trained on, or as of `finetune.datasets`; or a frame of
                pandas with those columns.
            task: the one of several tasks.
        """
        predictor = self._predictor(task)
        columns = list_columns(list_sections(predictor.run.config)[predictor.name].data)
        lines, *_ = predictor.predict_lines(list_examples(examples, predictor.data, columns))
        return lines[0] if isinstance(examples, str | Mapping) else lines

    @functools.cached_property
    def _whole(self) -> Run:
        # With its backbone, which a run of a task's own network alone lacks.
        return load_run(self.workdir)

    @functools.cached_property
    def _scorer(self) -> TokenScorer:
        return TokenScorer(self._whole, self.layout)

    def _open_embedder(
        self, pool: str, layers: str, mix: str, normalize: bool, cut: bool
    ) -> Embedder:
        choice, kind = parse_pool(pool, layers, mix, count=self._whole.backbone.N + 1)
        options: dict[str, Any] = dict(pool=kind, normalize=normalize, cut=cut)
        return Embedder(self._whole, self.layout, choice, **options)

    def _open_writer(self, sampler: Sampler) -> Writer:
        # Weights are split over the devices, and rows are not: prompts may be fewer.
        return Writer(self._whole, Layout(make_mesh(data=1, fsdp=-1)), sampler)

    def _open_predictor(self, task: str) -> Predictor:
        return Predictor(job.load_job(self.workdir, task), self.layout)


@explain_to_callers()
def load(workdir: str | pathlib.Path) -> TrainedRun:
    """Opens a run: one that was trained, fine-tuned, or imported by `pretrain.convert`.

    Raises:
        UserError: the folder holds none.
    """
    return TrainedRun(workdir)


def unwrap(results: list[Any], texts: Texts) -> Any:
    """Returns the only result of a text that was given by itself."""
    return results[0] if isinstance(texts, str) else results
