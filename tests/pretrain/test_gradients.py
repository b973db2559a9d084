"""The command that diagnoses gradients, from its recipe to tables and pictures."""

import json
import subprocess
import sys

from tests.support.tiny_runs import ROOT


def test_the_gradients_command_writes_a_table_lines_and_pictures(tmp_path):
    command = [sys.executable, "-m", "pretrain.gradients", f"--out={tmp_path}"]
    command += ["--config=configs/gradients.py:tiny"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    lines = [json.loads(x) for x in (tmp_path / "gradients.jsonl").read_text().splitlines()]
    studies = list(dict.fromkeys(line["study"] for line in lines))
    assert studies == ["decay", "sweep", "deep", "exploding", "adding"]
    for line in lines:
        assert line["label"] in done.stdout
        assert line["curve"]
    assert sorted(path.stem for path in tmp_path.glob("*.png")) == sorted(studies)
