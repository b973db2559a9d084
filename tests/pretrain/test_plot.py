"""The command that draws runs together."""

import subprocess
import sys

from pretrain.training.logging import Writer
from tests.support.tiny_runs import ROOT


def test_the_plot_command_draws_runs_together(tmp_path):
    writer = Writer(tmp_path, 0)
    writer.write(1, loss=1.0)
    writer.close()
    out = tmp_path / "two.png"
    command = [sys.executable, "-m", "pretrain.plot", str(tmp_path), str(tmp_path), f"--out={out}"]
    subprocess.run(command, cwd=ROOT, check=True)
    assert out.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
