"""The twin of a classifier recipe trains on its rows, and is scored as ours is."""

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import twin
from benchmarks.contest import runner
from configs.finetune import textcnn
from finetune import job as jobs
from pretrain.runtime.errors import UserError
from tests.support import torch_peer

WORDS = ("good", "fine", "bad", "poor", "film", "plot")
SMALL = {
    "model.D": 8,
    "vectors.path": "",
    "epochs": 20.0,
    "batches.B": 8,
    "batches.L": 8,
    "train.eval_every": 20,
    "optim.lr": 10.0,
}


@pytest.fixture
def lines(tmp_path):
    """Sentences whose label says which of two kinds of words they have."""
    rng = np.random.default_rng(0)
    path = tmp_path / "lines.txt"
    label_N = rng.integers(0, 2, 60)
    texts = [
        " ".join(rng.choice(WORDS[4:], 3)) + " " + WORDS[2 * y + n % 2]
        for n, y in enumerate(label_N)
    ]
    path.write_text("".join(f"{y} {text}\n" for y, text in zip(label_N, texts, strict=True)))
    return path


def small(path, **changes):
    """The recipe of folds with these lines."""
    config = textcnn.get_config("mr.rand")
    config.data.train, config.data.folds = str(path), 3
    config.update_from_flattened_dict(SMALL | changes)
    return config


def test_the_twin_has_our_rows_and_vectors(lines, tmp_path):
    np.savez(tmp_path / "vectors.npz", words=WORDS, vectors=np.eye(6, 8, dtype=np.float32))
    config = small(lines, **{"vectors.path": str(tmp_path / "vectors.npz")})
    job = jobs.build_job(config, lambda _: None)
    arrays = twin.export_arrays(job)
    assert {name.split("/")[0] for name in arrays} == {"train", "dev", "test", "rows_VD"}
    np.testing.assert_array_equal(arrays["train/tokens_BL"], job.train.arrays["tokens_BL"])
    assert (arrays["dev/lengths_B"] == 4).all()
    good = job.start.tokenizer.pieces.index("good")
    np.testing.assert_array_equal(arrays["rows_VD"][good], np.eye(8)[0])


def test_the_best_evaluation_counts_and_of_equal_ones_the_first(lines):
    config = small(lines)
    job = jobs.build_job(config, lambda _: None)
    # Right logits, wrong ones, right ones again.
    right = {name: np.eye(2)[x.arrays["label_B"]] for name, x in job.evals.items()}
    logits = {name: np.stack([1 - x, x, x, 1 - x]) for name, x in right.items()}
    evaluations = logits | {"steps": np.array([3, 6, 9, 10])}
    step, values = twin.choose_best(job, config.train, evaluations)
    assert (step, values["dev/accuracy"], values["test/accuracy"]) == (6, 1.0, 1.0)
    config.train.best = ""
    step, values = twin.choose_best(job, config.train, evaluations)
    assert (step, values["test/accuracy"]) == (10, 0.0)
    config.train.best = "dev/f1"
    with pytest.raises(UserError, match=r"train\.best='dev/f1': a twin has dev/accuracy"):
        twin.choose_best(job, config.train, evaluations)


def test_a_toy_recipe_trains_for_each_fold(lines, tmp_path):
    torch_peer.skip_without_torch()
    recipe = "configs/finetune/textcnn.py:mr.rand"
    fields = SMALL | {"data.train": lines, "data.folds": 2}
    command = [sys.executable, "-m", "benchmarks.twin", f"--config={recipe}", "--threads=1"]
    command += [f"--peer_python={torch_peer.PEER_PYTHON}", f"--json={tmp_path / 'scores.json'}"]
    command += [f"--config.{name}={value}" for name, value in fields.items()]
    done = subprocess.run(command, cwd=runner.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    jobs = json.loads((tmp_path / "scores.json").read_text())["jobs"]
    assert list(jobs) == ["fold-0", "fold-1"]
    assert np.mean([entry["values"]["test/accuracy"] for entry in jobs.values()]) > 0.9
    assert "test/accuracy: " in done.stdout.splitlines()[-1]
