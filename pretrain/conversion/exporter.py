"""A run's weights become a release that others read, one array at a time."""

import importlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from pretrain.checkpoint import named_leaves
from pretrain.checkpoint.transfer import describe_leaves
from pretrain.conversion import drafts, systems, task_heads
from pretrain.conversion.model_card import Facts, write_card
from pretrain.conversion.name_map import Link, Shapes, Table, list_unmapped
from pretrain.conversion.sentence_transformers import SentenceForm, check_form, write_steps
from pretrain.conversion.systems import ORIGIN, Kind, System, read_origin
from pretrain.conversion.task_heads import Heads, TunedHead
from pretrain.formats import Spec
from pretrain.formats.base import explain_write_errors
from pretrain.inference.run import Run
from pretrain.inference.text_format import format_name
from pretrain.inference.trained_run import load_run, load_weights, weights_folder, weights_key
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import update_json

DTYPES = ("float32", "float16", "bfloat16")


def export_weights(
    workdir: Path,
    folder: Path,
    say: Callable[[str], None] = print,
    *,
    kind: str = "",
    system: str = "",
    dtype: str = "",
    sentences: SentenceForm | None = None,
    license: str = "",
) -> None:
    """Writes the weights of the run in `workdir` as others read them, all or nothing.

    A fine-tuned run's head goes out where their code has a class that computes it; else, and where
    sentence-transformers is to read the folder, its backbone alone does.

    Args:
        kind: of release, one that its system has; "": Hugging Face's, or the only one.
        system: a file of `pretrain.conversion.systems`, or a module of your own; "": the one that
            the run was imported as, or that can write it.
        dtype: of the arrays; "": as they came in, or float32.
        sentences: how sentence-transformers is to make vectors; None: the folder is not for it.
        license: of the weights, for their card; "": as their origin says.

    Raises:
        UserError: there is no run, its system has no such kind, the run computes what theirs
            cannot, or `folder` is there already.
    """
    run = load_run(workdir)
    module = find_system(run, kind, system)
    kind = choose_kind(module, run, kind)
    dtype = dtype or read_dtype(workdir)
    # Before the shapes are read: what cannot be pooled there is refused at once.
    if sentences:
        check_form(run, sentences, module.KINDS[kind].model_type)
    shapes = read_shapes(run)
    tuned = find_head(run, module.KINDS[kind], getattr(module, "HEADS", {}), shapes, sentences)
    if "objective" not in run.config and not tuned.head:
        shapes = task_heads.select_backbone(shapes, tuned.reason, say)
    table = module.build_table(kind, shapes)
    if tuned.head:
        table = task_heads.extend_table(table, tuned.head, shapes)
    if unmapped := list_unmapped(table, shapes):
        raise UserError(f"such a release has no place for {', '.join(unmapped)}")
    # A file's header comes before its arrays, so their order is settled first.
    order = list(itertools.chain.from_iterable(names for _, names in group_arrays(table)))
    theirs = table.specs(shapes, jnp.dtype(dtype))
    specs = {name: theirs[name] for name in order}
    numbers = sum(math.prod(spec.shape) for spec in specs.values())
    with drafts.draft_folder(folder, say) as draft:
        with explain_write_errors(folder):
            module.write_config_and_tokenizer(run, draft, kind, dtype)
            if tuned.head:
                update_json(draft / "config.json", **tuned.list_config_fields())
                if write_frame := getattr(module, "write_frame", None):
                    write_frame(run, draft)
        form = module.KINDS[kind]
        writer = importlib.import_module(f"pretrain.formats.{form.format}").write
        file = form.weights.replace("*.", "model.").replace("*", "")
        place = draft / file if file else draft
        writer(place, specs, stream_arrays(run, table, shapes, specs))
        if sentences:
            with explain_write_errors(folder):
                write_steps(run, draft, sentences, read_pooler(run, sentences, shapes))
        pool = sentences.pool if sentences else ""
        facts = Facts(folder.name, kind, form.model_type, numbers, dtype, pool, license, tuned)
        with explain_write_errors(folder):
            write_card(run, draft, facts)
    say(f"{len(specs)} arrays of {numbers:,} numbers, {dtype}, in {folder}")
    for name, why in table.absent.items():
        if name in shapes:
            say(f"left behind: {name}, {why}")
    names = ["note_tokenizer", *([] if tuned.head else ["advise"])]
    for ask in (getattr(module, name) for name in names if hasattr(module, name)):
        for line in ask(run, kind):
            say(line)


def find_head(
    run: Run, kind: Kind, heads: Heads, shapes: Shapes, sentences: SentenceForm | None
) -> TunedHead:
    """Finds the class for the head of a fine-tuned run; none for a run of another kind."""
    if "objective" in run.config:
        return TunedHead({}, None)
    if sentences:
        return TunedHead({}, None, "sentence-transformers reads the backbone alone")
    if not kind.model_type:
        return TunedHead({}, None, f"a folder of format {kind.format!r} has no place for them")
    classes = {
        learned: [head for head in those if head.model_type in ("", kind.model_type)]
        for learned, those in heads.items()
    }
    return task_heads.find_head(run, classes, shapes)


def find_system(run: Run, kind: str = "", system: str = "") -> System:
    """Finds the system whose releases are of models like this run's.

    Raises:
        UserError: there is none, or several could write it.
    """
    # The one that is named, else the one that the run was imported as, else the only one that
    # frames texts so and can write the run's model.
    if system := system or str(read_origin(run.workdir).get("system", "")):
        return systems.load_system(system)
    text_format = format_name(run.config)
    alike = {
        name: module
        for name, module in systems.list_systems().items()
        if text_format == module.TEXT_FORMAT
    }
    if not alike:
        raise UserError(f"nobody else reads weights of text_format {text_format!r}")
    able = {name: x for name, x in alike.items() if list_kinds(x, run)}
    able = {name: x for name, x in able.items() if kind in x.KINDS} or able
    if len(able) > 1:
        raise UserError(f"this run could be written as {', '.join(able)}: name one with --system")
    return next(iter((able or alike).values()))


def list_kinds(module: System, run: Run) -> list[str]:
    """Lists the kinds of releases that this run can be written as."""
    return [
        name for name, x in module.KINDS.items() if x.writable and module.is_writable(run, name)
    ]


def choose_kind(module: System, run: Run, kind: str) -> str:
    """Returns the kind of release, by default Hugging Face's or the only one.

    Raises:
        UserError: this run cannot be written so.
    """
    kinds = list_kinds(module, run)
    if not kinds:
        raise UserError("no release is of a model like this run's")
    if kind and kind not in kinds:
        raise UserError(f"--kind={kind}: this run can be written as {', '.join(kinds)}")
    return kind or next((name for name in kinds if "hugging_face" in name), kinds[0])


def read_dtype(workdir: Path) -> str:
    """Returns the dtype that the weights were imported in; float32 for runs trained here."""
    # A file that is no origin has the dtype asked for, not guessed.
    dtype = read_origin(workdir).get("dtype", None if (workdir / ORIGIN).exists() else "float32")
    if dtype not in DTYPES:
        raise UserError(
            f"{workdir / ORIGIN}: dtype is {dtype!r}, not one of {', '.join(DTYPES)}: say --dtype"
        )
    return dtype


def read_shapes(run: Run) -> dict[str, tuple[int, ...]]:
    """Reads the shapes of the run's parameters by name from its newest readable checkpoint."""
    key = f"{weights_key(run)}/"
    leaves = describe_leaves(weights_folder(run), key)
    return {name.removeprefix(key): tuple(x.shape) for name, x in leaves.items()}


def group_arrays(table: Table) -> Iterator[tuple[list[str], list[str]]]:
    """Yields parameters that must be read together, and the arrays that come of these."""
    theirs, left = table.by_theirs(), dict(table.by_ours())
    while left:
        group: list[str] = [next(iter(left))]
        names: dict[str, None] = {}
        for ours in group:  # grows
            names |= {link.theirs: None for link in left.pop(ours)}
            # An array of theirs may hold parts of several parameters, as ELMo's kernels do.
            also = (link.ours for name in names for link in theirs[name])
            group += [x for x in dict.fromkeys(also) if x in left and x not in group]
        yield group, list(names)


def stream_arrays(
    run: Run, table: Table, shapes: Shapes, specs: Mapping[str, Spec]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields their arrays, made of a few of our parameters at a time."""
    links = table.by_theirs()
    for group, names in group_arrays(table):
        ours = {name: read_parameter(run, name, shapes[name]) for name in group}
        for name in names:
            yield name, assemble(name, specs[name], links[name], ours)
        del ours  # the next need the room


def assemble(
    name: str, spec: Spec, links: Sequence[Link], ours: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Assembles one of their arrays of the parts of ours that it is.

    Raises:
        UserError: a number is too large for its type.
    """
    array = np.zeros(spec.shape, spec.dtype)  # some entries may be nobody's
    for link in links:
        with np.errstate(over="ignore"):  # seen below
            link.write(array, ours[link.ours][link.at])
    if not np.isfinite(array.astype(np.float32)).all():
        raise UserError(f"{name} does not fit in {array.dtype}: take another --dtype")
    return array


def read_pooler(run: Run, form: SentenceForm, shapes: Shapes) -> list[np.ndarray]:
    """Reads weight and bias of the backbone's pooler, if sentences are pooled by it."""
    names = ("backbone/pool_DD", "backbone/pool_bias_D") if form.pool == "pooler" else ()
    return [read_parameter(run, name, shapes[name]) for name in names]


def read_parameter(run: Run, name: str, shape: tuple[int, ...]) -> np.ndarray:
    # On one device, whatever mesh the run was trained on: it is written from there.
    like = jax.ShapeDtypeStruct(
        shape, jnp.float32, sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0])
    )
    tree, _ = load_weights(run, named_leaves.nest({name: like}), name)
    return np.asarray(named_leaves.flatten(tree)[name])
