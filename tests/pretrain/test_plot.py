"""The command that draws runs together."""

from pretrain.training.reports.metrics_file import Writer
from tests.support import commands


def test_the_plot_command_draws_runs_together(tmp_path):
    writer = Writer(tmp_path, 0)
    writer.write(1, loss=1.0)
    writer.close()
    out = tmp_path / "two.png"
    assert commands.run("-m", "pretrain.plot", tmp_path, tmp_path, f"--out={out}").returncode == 0
    assert out.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
