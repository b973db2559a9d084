"""Lists the recipes, their presets and their parameters, as --list of the commands prints them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pretrain.aot import step_memory
from pretrain.runtime import recipe_files
from pretrain.runtime.errors import UsageError


def list_rows(names: Sequence[str] = (), first: str = "") -> Iterator[str]:
    """Yields a line for each recipe, and below it one for each of its presets.

    Args:
        names: of recipes, as "bert"; none: all.
        first: the folder of configs/ whose recipes come first; "": none.

    Raises:
        UsageError: there is no recipe of such a name.
    """
    files = recipe_files.list_files()
    if unknown := set(names) - {file.stem for file in files}:
        known = ", ".join(dict.fromkeys(file.stem for file in files))
        raise UsageError(f"there is no recipe {min(unknown)!r}; there are {known}")
    for file in sorted(files, key=lambda file: file.parent.name != first):
        if not names or file.stem in names:
            yield from _describe_recipe(file)


def _describe_recipe(file: Path) -> Iterator[str]:
    path = recipe_files.ROOT / file
    yield f"{file}  {recipe_files.read_title(path)}"
    for preset in recipe_files.list_presets(path):
        config = recipe_files.load(f"{path}:{preset}".rstrip(":"))
        # Without an objective the model is that of another run.
        has_model = "objective" in config and "name" in config.get("model", {})
        count = f"{step_memory.count_recipe_parameters(config):>19,}" if has_model else ""
        yield f"    {f'{file.stem}:{preset}'.rstrip(':'):<28}{count}".rstrip()
