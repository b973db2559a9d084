"""Judges sentence vectors by people's scores of pairs, and by the room that the vectors take."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from finetune import datasets
from finetune.metrics import sentence_vectors as metrics
from finetune.metrics.classification import spearman
from finetune.sentences import SentenceReader

LEFT_OUT = (0, 10, 34, 50, 100)  # commonest tokens (Yan et al. 2021, figure 2)
DIRECTIONS = 10  # shares that are told
SENTENCES = 10_000  # whose pairs are compared for uniformity: all pairs take the square of it


class Pairs(NamedTuple):
    """The scored pairs of a file; `task` is the folder that it was named by, or the file."""

    path: str
    task: str
    texts: list[tuple[str, str]]
    score_N: np.ndarray


class Post(NamedTuple):
    """Processes vectors before they are compared.

    Attributes:
        normalize: they are divided by their length first.
        whiten: directions that are kept and whitened; 0: all, as they are.
    """

    normalize: bool = False
    whiten: int = 0

    def fit(self, x_ND: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Fits the processing to the vectors of all sentences; returns it: [N, D] -> [N, K]."""
        start = metrics.normalize if self.normalize else lambda x_ND: np.asarray(x_ND, np.float64)
        if not self.whiten:
            return start
        whitening = metrics.fit_whitening(start(x_ND), self.whiten)
        return lambda x_ND: whitening(start(x_ND))


AS_THEY_ARE = Post()


def read_pairs(paths: Sequence[str]) -> tuple[list[Pairs], list[str]]:
    """Reads files of pairs, and all STS.input.*.txt of the folders among the paths.

    Returns:
        The pairs of each file, and notes of what was left out.

    Raises:
        UserError: see `finetune.datasets.similarity`; or a folder has no such files.
    """
    list_files = datasets.file_format("similarity").list_files
    files = [(file, path) for path in paths for file in list_files(path)]
    pairs, notes = [], []
    for file, task in files:
        content = datasets.read("similarity", file)
        texts = [(first, second) for first, second in (x["texts"] for x in content.examples)]
        pairs.append(Pairs(file, task, texts, np.array([x["label"] for x in content.examples])))
        notes += content.notes
    return pairs, notes


def judge(
    reader: SentenceReader, pairs: Sequence[Pairs], post: Post = AS_THEY_ARE, positive: float = 4.0
) -> dict[str, Any]:
    """Judges the vectors that a reader gives for the sentences of all pairs.

    Args:
        post: is fitted to all distinct sentences, with all of their tokens.
        positive: pairs that are scored higher mean the same, for the alignment.

    Returns:
        JSON.  Correlations are times 100, as they are published; "cosines" are by file.
    """
    # Each text once: files of STS repeat many sentences.
    numbers = {text: 0 for x in pairs for pair in x.texts for text in pair}
    numbers = {text: i for i, text in enumerate(numbers)}
    places = [np.array([[numbers[t] for t in pair] for pair in x.texts]) for x in pairs]
    all_texts = [text for x in pairs for pair in x.texts for text in pair]
    ranked = metrics.rank_tokens(reader.list_tokens(all_texts)) if reader.averages else []
    # Only of an average can single tokens be left out.
    counts = LEFT_OUT if reader.averages else LEFT_OUT[:1]
    vectors_KND = reader.read(list(numbers), [frozenset(ranked[:k]) for k in counts])
    process = post.fit(vectors_KND[0])
    whole_ND = process(vectors_KND[0])
    scored = _compare(whole_ND, pairs, places)
    curve = {
        k: 100 * metrics.aggregate(_compare(process(x_ND), pairs, places))["all"]
        for k, x_ND in zip(counts, vectors_KND, strict=True)
    }
    return {
        **score_files(pairs, scored),
        **measure_room(whole_ND),
        "alignment": _align(whole_ND, pairs, places, positive),
        "without commonest": {str(k): value for k, value in curve.items()},
        "commonest": ranked[: max(counts)],
        "cosines": {x.path: both[0].tolist() for x, both in zip(pairs, scored, strict=True)},
    }


def score_files(
    pairs: Sequence[Pairs], scored: Sequence[tuple[np.ndarray, np.ndarray]]
) -> dict[str, Any]:
    """Correlates cosines and people's scores: by file, by folder, and over all of them.

    Returns:
        "files", "all", "mean" and "weighted mean"; where a folder was named, "tasks", each with
        these three, and "tasks' mean", their mean over what was named.
    """
    files = {
        x.path: {"pairs": len(x.texts), "spearman": 100 * spearman(*map(list, both))}
        for x, both in zip(pairs, scored, strict=True)
    }
    result: dict[str, Any] = {"files": files, **_percent(metrics.aggregate(scored))}
    if all(x.task == x.path for x in pairs):
        return result
    tasks: dict[str, list] = {}
    for x, both in zip(pairs, scored, strict=True):
        tasks.setdefault(x.task, []).append(both)
    result["tasks"] = {name: _percent(metrics.aggregate(parts)) for name, parts in tasks.items()}
    rows = result["tasks"].values()
    result["tasks' mean"] = {k: float(np.mean([row[k] for row in rows])) for k in next(iter(rows))}
    return result


def measure_room(x_ND: np.ndarray) -> dict[str, Any]:
    """Measures how much of the sphere vectors take: little, where they have collapsed."""
    shares_D = metrics.singular_shares(x_ND)
    # The same ones for every run, so that runs can be compared.
    some = np.random.default_rng(0).permutation(len(x_ND))[:SENTENCES]
    return {
        "sentences": len(x_ND),
        "mean cosine": metrics.mean_cosine(x_ND),
        "uniformity": metrics.uniformity(x_ND[np.sort(some)]),
        "singular shares": shares_D[:DIRECTIONS].tolist(),
        "effective rank": metrics.effective_rank(shares_D),
    }


def _percent(values: Mapping[str, float]) -> dict[str, float]:
    return {name: 100 * x for name, x in values.items()}


def _compare(x_ND: np.ndarray, pairs: Sequence[Pairs], places: Sequence[np.ndarray]) -> list:
    """Lists the cosines and people's scores of each file."""
    return [
        (metrics.cosines(x_ND[at[:, 0]], x_ND[at[:, 1]]), x.score_N)
        for x, at in zip(pairs, places, strict=True)
    ]


def _align(
    x_ND: np.ndarray, pairs: Sequence[Pairs], places: Sequence[np.ndarray], positive: float
) -> float | None:
    """Measures the alignment of pairs that are scored higher than this; None: there are none."""
    at = np.concatenate([y[x.score_N > positive] for x, y in zip(pairs, places, strict=True)])
    return metrics.alignment(x_ND[at[:, 0]], x_ND[at[:, 1]]) if len(at) else None
