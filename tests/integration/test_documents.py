"""The repository's pages: links lead somewhere, and what README and tutorials show can be run."""

import pathlib

import pytest

from tests.support import markdown, page_runner

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = (".", ".github/ISSUE_TEMPLATE", "benchmarks", "docs", "docs/*", "launch")
RUN = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
PAGES = sorted(page for folder in FOLDERS for page in ROOT.glob(f"{folder}/*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    broken = []
    for link in markdown.list_links(page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists() or (
            anchor and anchor not in markdown.list_anchors(target.read_text())
        ):
            broken.append(link)
    assert not broken


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A folder of prepared corpora, which the pages share."""
    return tmp_path_factory.mktemp("corpora")


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a page trains several times
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_blocks_of_a_page_run_as_they_are_written(page, tmp_path, corpora):
    folder = tmp_path / "page"
    folder.mkdir()
    page_runner.run_page(page, folder, corpora)


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_a_page_leaves_out_as_many_blocks_as_its_settings_have(page):
    assert page_runner.count_left_out(page) == page_runner.find_settings(page)["left_out"]


def test_a_block_that_fails_is_named_by_its_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```bash\ntrue\n```\n\n```bash no-run\nfalse\n```\n```bash\nfalse\n```\n")
    with pytest.raises(pytest.fail.Exception, match=r"page\.md, line 8: exit code 1"):
        page_runner.run_page(page, tmp_path, tmp_path / "corpora")
