"""The repository's pages: links lead somewhere."""

import pathlib

import pytest

from tests.support import markdown

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = (".", ".github/ISSUE_TEMPLATE", "benchmarks", "docs", "docs/*", "launch")
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
