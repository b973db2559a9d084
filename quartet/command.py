"""Runs every command by one word:  quartet pretrain --config=xlnet:mini

`quartet pretrain` is `python -m pretrain.main`, `quartet embed` is `python -m pretrain.embed`, and
so on; `quartet` alone lists them.
"""

import ast
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("pretrain", "finetune")
MARK = "\n    cli.run("  # the line that makes a file a command


def list_commands() -> dict[str, str]:
    """Lists the modules of the commands by their names: `main` is called as its folder is."""
    modules = {}
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            if MARK in file.read_text(encoding="utf-8"):
                name = folder if file.stem == "main" else file.stem
                modules[name] = ".".join(file.relative_to(ROOT).with_suffix("").parts)
    return modules


def describe(module: str) -> str:
    """Returns the first sentence of a module's docstring, without importing it."""
    text = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text)) or ""
    return docstring.splitlines()[0].partition(":  ")[0].rstrip(":.")


def main() -> None:
    """Runs the command that the first word names, with the words behind it."""
    modules = list_commands()
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help", "help"):
        print("quartet COMMAND --help says more of each:\n")
        for command, module in modules.items():
            print(f"  quartet {command:<12}{describe(module)}")
        return
    if name not in modules:
        print(
            f"error: there is no command {name!r}: there are {', '.join(modules)}", file=sys.stderr
        )
        sys.exit(2)
    sys.argv[:2] = [f"quartet {name}"]
    # As `python -m` does, which puts the module's file in the place of the program's name.
    runpy.run_module(modules[name], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
