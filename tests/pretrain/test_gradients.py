"""The command that diagnoses gradients, from its recipe to tables and pictures."""

import json

import pytest

from tests.support import commands


@pytest.mark.slow
def test_the_gradients_command_writes_a_table_lines_and_pictures(tmp_path):
    words = [f"--out={tmp_path}", "--config=configs/gradients.py:tiny"]
    done = commands.run("-m", "pretrain.gradients", *words)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(x) for x in (tmp_path / "gradients.jsonl").read_text().splitlines()]
    studies = list(dict.fromkeys(line["study"] for line in lines))
    assert studies == ["decay", "sweep", "deep", "exploding", "adding"]
    for line in lines:
        assert line["label"] in done.stdout
        assert line["curve"]
    assert sorted(path.stem for path in tmp_path.glob("*.png")) == sorted(studies)
