"""Writes a data set into a file and reads it."""

import json
import pathlib
from typing import Any

from finetune import datasets


def read_written(
    folder: pathlib.Path, format: str, content: Any, name: str = "a.txt", **fields: Any
) -> datasets.Read:
    """Writes text, or an object as JSON, and reads it in a format."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return datasets.read(format, str(path), **fields)
