"""Goes on from a trained run: its architecture, tokenizer and weights, on another text.

The recipe's `init` names the run, an import or a fine-tuned run.  What the weights decide is taken
from there; text, batches, objective and schedule are the recipe's.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optax
from ml_collections import ConfigDict

import modules
from modules import plugins
from pretrain import objectives
from pretrain.checkpoint import named_leaves, transfer
from pretrain.checkpoint.paths import list_steps
from pretrain.data.batches.phases import has_first
from pretrain.data.tokenizers import Tokenizer
from pretrain.data.tokenizers.special_tokens import require_special
from pretrain.distributed.sharding import Layout, make_mesh, parse_letters
from pretrain.inference.continued_vocabulary import (
    VocabularyRows,
    match_rows,
    resolve_tokens,
    takes_own_words,
)
from pretrain.inference.grown_params import grow_param
from pretrain.inference.run import Run
from pretrain.inference.text_format import format_name, reads_as_trained
from pretrain.inference.trained_run import load_named_params, load_run, weights_folder
from pretrain.runtime.errors import UserError
from pretrain.runtime.run_config import read_config
from pretrain.training.train_state import State, replace_params

POSITIONS = ("new", "interpolated")
GROWN = ("S",)  # fields that the recipe may enlarge: `grow_param` adds rows


class Start(NamedTuple):
    """Holds what a pretraining run begins with.

    Attributes:
        config: the recipe, with what it takes of the run that it goes on from.
        run: that run, or the same one where it resumes; None: it begins with nothing.
        notes: what the user should know.
    """

    config: ConfigDict
    run: Run | None = None
    notes: Sequence[str] = ()

    def corpus_fields(self) -> Mapping[str, Any]:
        """Returns the section `corpus`, with the folder where the tokenizer is now."""
        if self.run is None or self.config.corpus.tokens.name != "saved":
            return self.config.corpus
        tokens = dict(self.config.corpus.tokens, folder=str(self.run.workdir / "tokenizer"))
        return {**self.config.corpus, "tokens": tokens}

    def check_special(self, readers: Iterable[Any]) -> None:
        """Checks that the run's vocabulary has the special tokens that are needed now.

        Args:
            readers: the objective and the layouts; each may have `required_special`.

        Raises:
            UserError: it lacks some.
        """
        if self.run is None or self.config.corpus.tokens.name != "saved":
            return  # a vocabulary of its own is known only with the text
        for reader in readers:
            name, names = type(reader).__module__, getattr(reader, "required_special", ())
            require_special(self.run.tokenizer.special, names, repr(name.rpartition(".")[2]))

    def loop_options(self, tokenizer: Tokenizer, say: Callable[[str], None]) -> dict[str, Any]:
        """Returns arguments of `loop.run`: what restores the weights, an evaluation of these.

        Args:
            tokenizer: of the prepared corpus.
            say: see `restore_params`.
        """
        if self.run is None:
            return {}
        rows, objective = match_rows(self.config, self.run, tokenizer), self.config.objective.name
        positions = self.config.get("init_positions", "new")
        restore = restore_params(self.run, objective, positions, say, rows)
        restore_opt = None
        if self.config.get("init_optimizer", False):
            restore_opt = restore_optimizer(self.run)

        def prepare(state: State) -> State:
            state = replace_params(state, restore(state.params))
            if restore_opt is None:
                return state
            return dataclasses.replace(state, opt=restore_opt(state.opt))

        return dict(prepare=prepare, evaluate_first=True)


def open_start(config: ConfigDict, workdir: Path) -> Start:
    """Opens the run that the recipe's `init` names, if it names one.

    Raises:
        UserError: the folder holds no run, none is named for `init_optimizer`, or as
            `resolve_recipe` and `check_options`.
    """
    if not config.get("init"):
        if config.get("init_optimizer", False):
            raise UserError("init_optimizer=True takes averages from the run that init is to name")
        return Start(config)
    resumes = (workdir / "config.json").exists() and list_steps(workdir / "checkpoints")
    # A run that resumes has architecture and tokenizer of its own: `init` need be there no more,
    # unless it is another than the run began with.
    if not resumes or read_config(workdir).get("init") != config.init:
        run = load_run(Path(config.init).expanduser())
    if resumes:
        run = load_run(workdir)
    recipe, notes = resolve_recipe(config, run, resumes=bool(resumes))
    if not resumes:
        check_options(recipe, run)
    return Start(recipe, run, notes)


def check_options(recipe: ConfigDict, run: Run) -> None:
    """Checks that weights and averages can begin as the recipe asks, before a text is read.

    Args:
        recipe: of `resolve_recipe`.

    Raises:
        UserError: they cannot.
    """
    if (positions := recipe.get("init_positions", "new")) not in POSITIONS:
        raise UserError(f"init_positions={positions!r} is none of {', '.join(POSITIONS)}")
    if not recipe.get("init_optimizer", False):
        return
    if takes_own_words(recipe) or recipe.model.V != run.config.model.V:
        raise UserError("init_optimizer: the run has no averages for rows of new words")
    objective, optimizer = recipe.objective.name, recipe.optim.name
    if not has_objective(run, objective):
        raise UserError(
            f"init_optimizer: {run.workdir} was not trained for objective {objective!r}"
        )
    if weights_folder(run) != run.workdir:
        raise UserError(f"init_optimizer: {run.workdir}/best holds weights alone")
    if (theirs := run.config.get("optim", {}).get("name")) != optimizer:
        raise UserError(
            f"init_optimizer: {run.workdir} has another optimiser: {theirs}, here {optimizer}"
        )


def resolve_recipe(
    config: ConfigDict, run: Run, resumes: bool = False
) -> tuple[ConfigDict, list[str]]:
    """Returns the recipe of a run that goes on from another, and what the user should know.

    Sections `model`, `text_format` and `corpus.tokens` are the run's, and of the same objective
    `head`.  The recipe changes of `model` what no weight depends on (`Backbone.FREE_FIELDS`), and
    there are as many positions as its rows have.

    Args:
        resumes: `run` is the one that goes on, and not what it goes on from.

    Raises:
        UserError: the vocabulary cannot be as the recipe asks, or texts are to be read in the other
            direction.
    """
    recipe = ConfigDict(config.copy_and_resolve_references().to_dict())
    V, tokens, note = resolve_tokens(recipe, run, resumes)
    model, wanted = run.config.model.to_dict(), recipe.model.to_dict()
    longest, notes = max(_list_lengths(recipe), default=0), [note] if note else []
    # What has a note of its own is in no other.
    if note:
        wanted["V"] = model["V"]
    if longest > (L := model.get("L", longest)):
        notes.insert(0, f"model.L={longest} for the rows of this recipe: the run has {L}")
        wanted["L"] = model["L"] = longest
    if wanted.get("name") != model["name"]:
        notes += _drop_foreign_execution(recipe, model["name"])
    model, differences = merge_models(model, wanted, run.workdir)
    model["V"] = V
    if V and has_objective(run, config.objective.name):
        recipe.head = dict(run.config.get("head", {}))
    text_format = format_name(run.config)
    if recipe.get("text_format", text_format) != text_format:
        theirs = recipe.text_format
        notes.append(f"text_format: as in {run.workdir}, {text_format!r}, not {theirs!r}")
    if not reads_as_trained(text_format, recipe.batches):
        raise UserError(
            f"batches.backward={recipe.batches.backward}: {run.workdir} reads texts in the other "
            f"direction, by its text_format {text_format!r}"
        )
    recipe.corpus.tokens, recipe.model, recipe.text_format = tokens, model, text_format
    return recipe, [*differences, *notes]


def _drop_foreign_execution(recipe: ConfigDict, name: str) -> list[str]:
    """Drops what neither this backbone nor the objective has of `execution`; returns notes."""
    execution = recipe.get("execution", {})
    kinds = modules.load_backbone(name), objectives.load_kind(recipe.objective.name)
    known = {key for kind in kinds for key in plugins.select_fields(kind, execution)}
    foreign = sorted(set(execution) - known)
    for key in foreign:
        del execution[key]
    return [f"execution.{key}: left out, this architecture has none" for key in foreign]


def merge_models(
    model: Mapping[str, Any], wanted: Mapping[str, Any], workdir: Path
) -> tuple[dict[str, Any], list[str]]:
    """Merges the section `model` of a run with a recipe's.

    Args:
        model: the run's, which decides all that weights depend on.
        wanted: the recipe's, which changes `FREE_FIELDS` and enlarges `GROWN`.
        workdir: of the run, as notes name it.

    Returns:
        (the section, notes that name what differs)
    """
    model, wanted = ({k: _freeze(x) for k, x in fields.items()} for fields in (model, wanted))
    # Fields of another architecture say nothing about this one, but for how texts are read, which
    # the recipe's objective wants so.
    if wanted.get("name") != model["name"]:
        wanted = {k: x for k, x in wanted.items() if k in ("name", "attention")}
    free = modules.load_backbone(model["name"]).FREE_FIELDS
    free |= {x for x in GROWN if 0 < model.get(x, 0) < wanted.get(x, 0)}
    different = {x for x in wanted if wanted[x] != model.get(x)}
    changed = {x: wanted[x] for x in sorted(different & free)}
    unchanged = {x: model[x] for x in sorted(different - free) if x in model}
    notes = []
    if changed:
        notes.append(f"model: as in the recipe, not as in {workdir}: {_format(changed)}")
    if unchanged:
        notes.append(f"model: as in {workdir}, not as in the recipe: {_format(unchanged)}")
    return {**model, **changed}, notes


def _freeze(value: Any) -> Any:
    # What JSON has made a list of was a tuple.
    return tuple(map(_freeze, value)) if isinstance(value, list | tuple) else value


def _format(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in fields.items())


def _list_lengths(recipe: ConfigDict) -> list[int]:
    """Lists the tokens of a row, of training and of what is held out."""
    first = recipe.get("first_phase")
    phases = [first, recipe.batches] if has_first(first) else [recipe.batches]
    sections = [*phases, *recipe.evals.values()]
    return [section["L"] for section in sections if "L" in section]


def has_objective(run: Run, name: str) -> bool:
    """Checks that a run was trained for the objective of this name; a fine-tuned one was not."""
    return run.config.get("objective", {}).get("name") == name


def restore_params(
    run: Run,
    objective: str,
    positions: str,
    say: Callable[[str], None],
    rows: VocabularyRows | None = None,
) -> Callable[[Any], Any]:
    """Returns a function that puts the weights of a run into randomly initialized parameters.

    Args:
        objective: its name; of a run with another one, only the backbone is restored.
        positions: of more of them than the run has: "new", behind its own, or "interpolated", its
            own spread over all.
        say: called with a line for every parameter: restored, grown, new, or ignored.
        rows: of the vocabulary; None: the run's.
    """
    is_same = has_objective(run, objective)

    def grow(name: str, old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, str]:
        if rows is None or not _has_vocabulary(name):
            return grow_param(name, old, new, positions)
        return rows.place(old, parse_letters(name).index("V")), rows.describe()

    def prepare(params: dict[str, Any]) -> dict[str, Any]:
        old, step = load_params(run)
        # A head is of its objective: scores of one mean nothing to another.
        used = {name: x for name, x in old.items() if is_same or name.startswith("backbone/")}
        moved = [name for name in used if rows and _has_vocabulary(name)]
        merged, table = transfer.merge(named_leaves.flatten(params), used, grow, moved)
        table += [f"{name}: ignored, is of another objective" for name in old.keys() - used.keys()]
        say(f"weights of {run.workdir}, step {step}:")
        for line in table:
            say(f"  {line}")
        return named_leaves.nest(merged)

    return prepare


def _has_vocabulary(name: str) -> bool:
    return "V" in parse_letters(name)


def restore_optimizer(run: Run) -> Callable[[Any], Any]:
    """Returns a function that puts a run's averages of gradients into a new optimiser's state.

    The function raises a UserError if these are of other parameters.
    """

    def prepare(opt: Any) -> Any:
        new = named_leaves.flatten({"opt": opt})
        old = transfer.describe_leaves(run.workdir, "opt/")
        # Compared before gigabytes of averages are read.
        if {name: x.shape for name, x in new.items()} != {name: x.shape for name, x in old.items()}:
            raise UserError("init_optimizer: the run has another optimiser, or other parameters")
        saved, _ = transfer.load({"opt": opt}, run.workdir, "opt/")
        return tuple(
            # The schedule begins anew: it is the recipe's.
            first if isinstance(first, optax.ScaleByScheduleState) else old
            for first, old in zip(opt, saved["opt"], strict=True)
        )

    return prepare


def load_params(run: Run) -> tuple[named_leaves.Leaves, int]:
    """Loads all parameters of a run that count, by name, and the step that they are of.

    Raises:
        UserError: there is no checkpoint, or none verifies.
    """
    # Spread over all devices: the run's weights and the new ones are in memory together.
    return load_named_params(run, Layout(make_mesh(data=1, fsdp=-1)))
