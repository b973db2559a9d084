"""Files that pages show in whole are those that tests/integration/test_adding.py proves."""

import pytest

from tests.support.tiny_runs import ROOT


@pytest.mark.parametrize(
    ("page", "part"), [("own_objective", "prefix_lm"), ("own_task", "multi_label")]
)
def test_a_page_shows_the_part_that_is_proven(page, part):
    code = (ROOT / f"tests/support/own_parts/{part}.py").read_text()
    assert code in (ROOT / f"docs/tutorials/{page}.md").read_text()
