"""`python -m pretrain.fill` prints what could stand at each mask."""

from unittest import mock

from absl.testing import flagsaver

from pretrain import fill
from pretrain.inference.token_scorer import Filling

FILLINGS = [[Filling("state", 0.5), Filling("house", 0.25)], [Filling("war", 1.0)]]


def test_each_mask_has_a_line_below_its_text(tmp_path, capsys):
    (tmp_path / "in.txt").write_text("a [MASK] of [MASK]\n")
    scorer = mock.Mock(fill=mock.Mock(return_value=[FILLINGS]))
    fakes = dict(load_run=mock.Mock(), TokenScorer=mock.Mock(return_value=scorer))
    fill.flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(top=2), mock.patch.multiple(fill, **fakes):
        fill.main([str(tmp_path / "in.txt")])
    scorer.fill.assert_called_with(["a [MASK] of [MASK]"], 2)
    lines = ["a [MASK] of [MASK]", "    state 0.5000  house 0.2500", "    war 1.0000"]
    assert capsys.readouterr().out.splitlines() == lines
