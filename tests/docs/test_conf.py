"""The site's contents are the pages that docs/index.md leads to, in its order."""

import pathlib

from docs import conf
from tests.support import markdown

ROOT = pathlib.Path(__file__).parents[2]
INDEX = (ROOT / "docs" / "index.md").read_text()


def test_headings_of_the_index_become_tables_of_contents():
    index = "[R](../README.md)\n## Guides\n| [A](g/a.md) |\n## More\n[B](b.md#x) [A](g/a.md)\n"
    tables = [block.code.split() for block in markdown.list_blocks(conf.list_contents(index))]
    assert tables == [
        [":hidden:", "/README"],
        [":hidden:", ":caption:", "Guides", "/docs/g/a"],
        [":hidden:", ":caption:", "More", "/docs/b"],
    ]


def test_every_page_of_the_documentation_is_in_the_contents():
    contents = conf.list_contents(INDEX).split()
    pages = {path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")}
    assert {f"/{page.with_suffix('')}" for page in pages} - {*contents} == {"/docs/index"}
