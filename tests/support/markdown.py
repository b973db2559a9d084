"""Pages of Markdown: their headings' anchors, links and fenced blocks, as GitHub reads them."""

import dataclasses
import re
from collections import Counter

FENCE = re.compile(
    r"^(?P<mark>`{3,}|~{3,})(?P<info>[^\n]*)\n(?P<code>.*?)^(?P=mark)`*[ ]*$",
    re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)")


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: `language` and `words` stand behind the fence, `line` is where it begins."""

    language: str
    words: tuple[str, ...]
    code: str
    line: int


def list_blocks(page: str) -> list[Block]:
    """Lists the fenced blocks, in the page's order."""
    blocks = []
    for match in FENCE.finditer(page):
        language, *words = match["info"].split() or [""]
        line = page.count("\n", 0, match.start()) + 1
        blocks.append(Block(language, tuple(words), match["code"], line))
    return blocks


def list_links(page: str) -> list[str]:
    """Lists the targets of links and pictures, outside code."""
    text = re.sub(r"`[^`\n]*`", "code", FENCE.sub("", page))
    return [match["target"] for match in LINK.finditer(text)]


def list_anchors(page: str) -> list[str]:
    """Lists the anchor of each heading; a second of the same name has a number."""
    seen: Counter[str] = Counter()
    anchors = []
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", FENCE.sub("", page), re.MULTILINE):
        words = LINK.sub(r"\g<text>", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        anchors.append(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return anchors
