"""The command line of every main: its flags, the recipe that they name, and words beside them."""

import importlib
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict

from pretrain.cli.values import check_value
from pretrain.data.corpus import text_files
from pretrain.distributed import lost_processes
from pretrain.inference.layer_selection import SENTENCE_POOLS
from pretrain.runtime import recipe_check, recipe_files, usual_names
from pretrain.runtime.errors import UsageError, UserError

RECIPE = re.compile(r"--?config(=|$)")
VALUE = re.compile(r"--?(?:no)?config\.([\w.]+)(?:=|$)")  # of the recipe
LIST = re.compile(r"--?list(=true)?")
HELP = re.compile(r"--?(help(short|full|xml)?(=true)?|\?)")
UNSET = re.compile(r"flag --(\w+)=None: Flag .* must have a value")
# Flags of several commands, which one process may import.
POOL = flags.DEFINE_enum("pool", "", ("", *SENTENCE_POOLS), "Makes one vector of a sentence.")
NORMALIZE = flags.DEFINE_bool("normalize", False, "Divide sentences' vectors by their length.")
TEXT = flags.DEFINE_multi_string("text", [], "A text in place of a file; may be repeated.")
AGAINST = flags.DEFINE_list("against", [], "Further runs, beside that of --workdir: runs/b,runs/c")
OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace the file that is there, at the end.")
# For commands that predict the examples of a file.
FORMAT = flags.DEFINE_string(
    "format", "", "Format of the input; default: the recipe's, with its fields."
)
FIELDS = flags.DEFINE_string(
    "fields", "{}", 'Of the format, as JSON, beside the recipe\'s: \'{"label": ""}\' for none.'
)
TASK = flags.DEFINE_string("task", "", "The one of the run's tasks to predict; a run of one: none.")
SPLIT = flags.DEFINE_string("split", "", "Take the fields that the recipe has for this: test.")
ROWS = flags.DEFINE_integer(
    "rows", 0, "Rows of a batch, --batch, too; default: the recipe's eval_B.", 0
)
flags.DEFINE_alias("batch", "rows")
EXAMPLES = ("format", "fields", "task", "split", "rows")  # their names


def read(argv: list[str], has_words: bool = False) -> list[str]:
    """Reads the flags; a mistake ends the process with a line.

    Args:
        has_words: whether this command takes words that are no flags; it checks them itself.

    Returns:
        The program and the words that are no flags.
    """
    if any(map(LIST.fullmatch, argv[1:])):
        _print_recipes(Path(argv[0]).parent.name)
        sys.exit()
    # As a flag of absl's, --explain would take the next word for its value.
    argv[1:] = ["--explain=" if word == "--explain" else word for word in argv[1:]]
    _put_recipe_first(argv)
    _name_recipe_in_full(argv)
    try:
        _translate_names(argv)
        rest = parse(argv)
        check_words(rest[1:], has_words)
        return rest
    except UserError as error:
        lost_processes.end(error.code, f"error: {error}", error)


def parse(argv: list[str]) -> list[str]:
    """Sets the flags to their values, and returns the program and all that is no flag.

    Raises:
        UserError: the recipe does not load.
        UsageError: it is not there or lacks a key, or a flag is unknown or has no such value.
    """
    try:
        rest = flags.FLAGS(argv)
    # A recipe is run while flags are parsed, and may raise anything, an exit too.
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and any(map(HELP.fullmatch, argv[1:])):
            sys.exit(0)  # where absl ends with 1
        check_recipe(argv)  # names the file, line and key, where absl's error holds a traceback
        raise UsageError(_shorten_message(error) + _give_hint(error, argv)) from error
    # A recipe that returns no ConfigDict passes config_flags.
    if "config" in flags.FLAGS and not isinstance(flags.FLAGS["config"].value, ConfigDict):
        check_recipe(argv)
    return rest


def check_recipe(argv: list[str]) -> None:
    """Loads the recipe that a command line names, and looks for the keys that it changes.

    Raises:
        UserError: there is none, it does not load or lacks a key.
    """
    values = [(match[1], text) for match, text in _iter_values(argv)]
    if named := _find_recipe(argv):
        config = recipe_files.load(named)
        for key, _ in values:
            recipe_check.check_key(config, key)
        for key, text in values:
            check_value(config, key, text)
    elif values:
        key = values[0][0]
        raise UsageError(f"--config.{key}: name the recipe, too, as --config=configs/bert.py")


def _iter_values(argv: list[str]) -> Iterator[tuple[re.Match[str], str]]:
    """Yields the words that set keys of the recipe, as matches of `VALUE`, and what to."""
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if match := VALUE.match(word):
            # A bool may stand without a value.
            yield match, word.partition("=")[2] if "=" in word else following


def check_words(words: Iterable[str], has_words: bool) -> None:
    """Raises a UsageError for a flag without its dashes, and for any word where none is taken."""
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("config.") or ("=" in word and name in flags.FLAGS):
            value = "" if "=" in word else "=..."
            raise UsageError(f"{word} is no flag: write --{word}{value}")
        if "explain" in flags.FLAGS and flags.FLAGS["explain"].present:
            raise UsageError(f"to explain one section or key, write --explain={word}")
        if not has_words:
            raise UsageError(f"{word} is no flag, and this command takes nothing else: see --help")


def read_texts(words: Sequence[str]) -> list[str]:
    """Returns the texts of --text, and the lines of the files that words name.

    Raises:
        UsageError: there are none.
        UserError: a file cannot be read.
    """
    lines = [line for path in words for line in text_files.read_whole_lines(Path(path))]
    if not (texts := [*TEXT.value, *lines]):
        raise UsageError("name a text, as --text='The state of the Union', or a file of them")
    return texts


def parse_files(words: list[str], example: str) -> tuple[str, Path]:
    """Returns the file to read, and the one to write.

    Args:
        words: of the command line, without flags.
        example: what they could be, as "in.txt out.h5".

    Raises:
        UsageError: these are not two files.
        UserError: the one to write is there, and --overwrite is not given.
    """
    if len(words) != 2:
        raise UsageError(f"name two files, the one to read and the one to write: {example}")
    source, out = words[0], Path(words[1])
    check_unused(out)
    return source, out


def check_unused(out: Path) -> None:
    """Raises a UserError if a file to write is there, and --overwrite is not given."""
    # Before the weights are read, which takes longer.
    if out.exists() and not OVERWRITE.value:
        raise UserError(f"{out} is there already: take another name, or --overwrite")


def end_with_reader() -> None:
    """Lets the process end without a word where nobody reads on, as behind `| head`."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _print_recipes(command: str) -> None:
    end_with_reader()
    # By name: it builds models, of which a command line knows nothing.
    for row in importlib.import_module("pretrain.aot.recipe_list").list_rows(first=command):
        print(row, flush=True)


def _put_recipe_first(argv: list[str]) -> None:
    # config_flags looks into sys.argv: a recipe is to come before the values that change it.
    at = next((i for i, word in enumerate(argv) if i and RECIPE.match(word)), 0)
    if at:
        end = at + (1 if "=" in argv[at] else 2)
        argv[1:end] = argv[at:end] + argv[1:at]


def _name_recipe_in_full(argv: list[str]) -> None:
    """Replaces the name of a recipe, as bert:base, by its path: config_flags takes files."""
    if named := _find_recipe(argv):
        command = Path(argv[0]).parent.name
        argv[1 : 2 if "=" in argv[1] else 3] = [f"--config={recipe_files.find(named, command)}"]


def _translate_names(argv: list[str]) -> None:
    """Replaces the names that other libraries have for keys of the recipe, and says so."""
    matches = [(n, match) for n, word in enumerate(argv) if (match := VALUE.match(word))]
    named = _find_recipe(argv)
    # A recipe is run to see its keys: not where every key may be its own.
    if not named or not any(usual_names.is_synonym(x[1]) for _, x in matches):
        return
    config = recipe_files.load(named)
    for n, match in matches:
        key = recipe_check.translate_key(config, match[1])
        if key != match[1]:
            print(f"{match[1]}: here it is called {key}", file=sys.stderr, flush=True)
            argv[n] = argv[n].replace(f"config.{match[1]}", f"config.{key}", 1)


def _find_recipe(argv: list[str]) -> str:
    """Returns the recipe that a command line names; "": none."""
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if RECIPE.match(word):
            return word.partition("=")[2] if "=" in word else following
    return ""


def _give_hint(error: BaseException, argv: list[str]) -> str:
    """Returns what to add to the message of an error of absl's; "": nothing."""
    if isinstance(error, flags.UnrecognizedFlagError):
        named = _find_recipe(argv)
        keys = recipe_check.find_keys(recipe_files.load(named) if named else None, error.flagname)
        return f"; did you mean {' or '.join(f'--config.{key}' for key in keys)}?" if keys else ""
    if not (unset := UNSET.match(str(error))):
        return ""
    if unset[1] != "config":
        return "; --help says what it is"
    words = [word for word in argv[1:] if word[:1] != "-" and recipe_files.is_file(word)]
    if words:
        return f": did you mean --config={words[0]}?"
    return ", as --config=bert:mini; --list names the recipes"


def _shorten_message(error: BaseException) -> str:
    """Shortens a message that may hold a whole traceback to its last line."""
    text = str(error.args[0] if error.args else error)
    if unset := UNSET.match(text):
        return f"--{unset[1]}=... is to be given"
    if "Traceback" in text:
        text = [line for line in text.splitlines() if line and line[:4] != " " * 4][-1]
        text = re.sub(r"^\s*\w+: ", "", text)
    return " ".join(text.replace("\\n", " ").replace("\\'", "'").split())


def read_format() -> tuple[str, str, str]:
    """Returns --format, --split and --fields, which say how a file of examples is read."""
    return FORMAT.value, SPLIT.value, FIELDS.value
