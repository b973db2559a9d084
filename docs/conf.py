"""Settings of the documentation's site: `make docs` builds it with Sphinx, of the same pages."""

import posixpath
import re

project = "Quartet"
author = copyright = "The Quartet authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Quartet"
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
# The source folder is the repository, so that pages beside docs/ are pages of the site, too.
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "launch/*.md"]
exclude_patterns = [".*", "build", "data", "runs", "tests"]
myst_heading_anchors = 4  # as GitHub names them
myst_enable_extensions = ["dollarmath"]
nitpicky = True
smartquotes = False  # quotes are part of values

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
PAGE = re.compile(r"\]\(([\w./-]+)\.md(?:#[\w-]+)?\)")


def list_contents(index: str) -> str:
    """Returns tables of contents: for each heading of the index the pages linked below it."""
    first, *parts = HEADING.split(index)
    seen: set[str] = set()
    tables = []
    for heading, text in [("", first), *zip(parts[::2], parts[1::2], strict=True)]:
        pages = [page for page in dict.fromkeys(PAGE.findall(text)) if page not in seen]
        seen |= set(pages)
        if pages:
            caption = [f":caption: {heading}"] if heading else []
            names = [posixpath.normpath(f"/docs/{page}") for page in pages]
            tables.append("\n".join(["```{toctree}", ":hidden:", *caption, "", *names, "```"]))
    return "\n\n".join(tables)


def add_contents(app, name: str, source: list[str]) -> None:
    """Adds them to the index as it is read: on GitHub it stays plain Markdown."""
    if name == root_doc:
        source[0] += "\n\n" + list_contents(source[0])


def setup(app) -> None:
    app.connect("source-read", add_contents)
