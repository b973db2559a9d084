"""Writes the card of exported weights: what they are of, what they came to, and how to go on.

Mitchell et al. 2019 (arXiv 1810.03993).  A card says what the run's folder says, and no more.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pretrain.conversion.private_paths import hide_paths, hide_words
from pretrain.conversion.systems import read_origin
from pretrain.conversion.task_heads import TunedHead
from pretrain.inference.run import Run
from pretrain.runtime.files import write_file
from pretrain.runtime.json_files import read_json
from pretrain.runtime.run_config import COMMAND, DATA, flatten, read_config
from pretrain.training.reports import results

CARD = "README.md"
# Searches the front matter alone: the text of a card may name other licences.
LICENSE = re.compile(r"\A---\n(?:(?!---).*\n)*?license:[ \t]*([\w.-]+)[ \t]*\n", re.MULTILINE)
UNKNOWN = "not stated here: it is that of the data, and of the weights that training began with"


class Facts(NamedTuple):
    """Holds what a card says besides what the run's folder does.

    Attributes:
        title: of the card.
        kind: of release, as "hugging_face".
        model_type: of its config.json; "": it has none.
        parameters: how many numbers were written.
        dtype: of these.
        pool: how sentence-transformers makes vectors of them; "": it does not.
        license: of the weights, as "apache-2.0"; "": as their origin says, if it does.
        tuned: the head that was written, if one was.
    """

    title: str
    kind: str
    model_type: str
    parameters: int
    dtype: str
    pool: str = ""
    license: str = ""
    tuned: TunedHead = TunedHead({}, None)

    @property
    def architecture(self) -> str:
        return self.tuned.head.name if self.tuned.head else ""


AUTO_CLASSES = {  # of transformers, by the ends of the architectures that they load, head and all
    "ForPreTraining": "AutoModelForMaskedLM",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForNextSentencePrediction": "AutoModelForNextSentencePrediction",
    "LMHeadModel": "AutoModelForCausalLM",
}


def write_card(run: Run, folder: Path, facts: Facts) -> None:
    """Writes the card of a run's exported weights into their folder."""
    origin = find_origin(run)
    facts = facts._replace(license=facts.license or str(origin.get("license", "")))
    text = "\n".join(
        [*_list_front_matter(facts, origin), *_list_sections(run, folder, facts, origin)]
    )
    write_file(folder / CARD, f"{text}\n".encode())


def read_license(folder: Path) -> str:
    """Reads the licence that the card in a folder of weights states; "": it states none."""
    card = folder / CARD
    match = LICENSE.match(card.read_text("utf-8", errors="replace")) if card.is_file() else None
    return match[1] if match else ""


def find_origin(run: Run) -> dict[str, Any]:
    """Finds what the weights of a run were imported from, or the run that it began with.

    Returns:
        What the import says, or the "folder" of a run of ours; {}: it began with random weights.
    """
    # An import says it itself; of a run that went on from one, its `init` does, or that one's.
    first: dict[str, Any] = {}
    folder, config, passed = Path(run.workdir), dict(run.config), set[Path]()
    while not (origin := read_origin(folder)) and folder not in passed:
        init = "" if config.get("random_init") else config.get("init")
        if not init:
            return first
        passed.add(folder)
        folder = Path(init).expanduser()
        first = first or {"folder": folder.name}
        config = dict(read_config(folder)) if (folder / "config.json").exists() else {}
    return origin or first


def find_metrics(run: Run) -> dict[str, str]:
    """Finds the numbers of the evaluation that counts, with deviations over seeds and folds."""
    if "train" not in run.config or (result := results.read_result(run.workdir)) is None:
        return {}
    jobs = _list_repetitions(run.workdir)
    values = [dict(x.values) for job in jobs if (x := results.read_result(job))]
    if len(values) < 2:  # of one run there is no deviation
        return {name: results.format_score(result.values[name]) for name in result.metrics}
    stats = results.compute_stats(values)
    return {
        name: f"{results.format_score(result.values[name])} "
        f"({results.format_score(stats['mean'][name])} ± "
        f"{results.format_score(stats['deviation'][name])} of {len(values)} runs)"
        for name in result.metrics
    }


def _list_repetitions(workdir: Path) -> list[Path]:
    """Lists the runs of the other seeds and folds of a job, and this one."""
    # The seeds and folds of a job are folders in the job's.
    top = workdir
    while top.name.startswith(("seed-", "fold-")):
        top = top.parent
    return results.list_jobs(top) if top != workdir else [workdir]


def _list_front_matter(facts: Facts, origin: Mapping[str, Any]) -> Iterator[str]:
    yield "---"
    if facts.license:
        yield f"license: {facts.license}"
    if facts.model_type:
        yield f"library_name: {'sentence-transformers' if facts.pool else 'transformers'}"
    if facts.tuned.pipeline:
        yield f"pipeline_tag: {facts.tuned.pipeline}"
    if base := str(origin.get("address", "")):
        # Without the revision, which this field does not take.
        yield f"base_model: {base.partition('@')[0]}"
    yield "tags:"
    yield from (f"- {tag}" for tag in filter(None, ["quartet", facts.model_type]))
    yield "---"


def _list_sections(
    run: Run, folder: Path, facts: Facts, origin: Mapping[str, Any]
) -> Iterator[str]:
    objective = run.config.get("objective", {}).get("name", "")
    what = f"pretrained by `{objective}`" if objective else "the backbone of a fine-tuned model"
    what = f"fine-tuned, as `{facts.architecture}`" if facts.architecture else what
    yield f"# {facts.title}"
    yield ""
    yield (
        f"A `{run.config.model.name}` of {facts.parameters:,} parameters ({facts.dtype}), {what}, "
        "exported by Quartet."
    )
    yield from _format_section("Data", _describe_data(run))
    if metrics := find_metrics(run):
        rows = [f"| {name} | {value} |" for name, value in metrics.items()]
        yield from _format_section("Metrics", ["| metric | value |", "|---|---|", *rows])
        yield from (
            "",
            "The evaluation is the best one where the recipe names a metric, else the last.",
        )
    yield from _format_section("Use", _describe_use(facts, folder))
    yield from _format_section("Origin", _describe_origin(origin))
    yield from _format_section("Licence", [facts.license or UNKNOWN])
    command = run.workdir / COMMAND
    if command.exists():
        yield from _format_section("Command", [f"    {hide_words(command.read_text('utf-8'))}"])
    recipe = hide_paths(flatten(read_config(run.workdir)))
    # "format" is of the file, and no setting.
    lines = [f"    {key}={json.dumps(value)}" for key, value in recipe.items() if key != "format"]
    yield from _format_section("Recipe", lines)


def _format_section(title: str, lines: list[str]) -> Iterator[str]:
    yield from ("", f"## {title}", "", *lines)


def _describe_data(run: Run) -> list[str]:
    config = hide_paths(read_config(run.workdir))
    path = run.workdir / DATA
    counts = read_json(path) if path.exists() else {}  # a run of before there was such a file
    corpus, data = config.get("corpus", {}), config.get("data", {})
    if "source" in corpus:
        lines = [f"Text: `{corpus['source']}`, of which {_describe_held_out(corpus)} is held out."]
        if counts:
            sizes = [f"{counts[name]:,} {name}" for name in ("tokens", "words", "documents")]
            lines += [f"It has {', '.join(sizes)}; {counts['held_out']:,} documents are held out."]
        return lines
    named = {name: data[name] for name in ("train", "dev", "test") if data.get(name)}
    splits = [f"{name}: `{_name_path(split)}`" for name, split in named.items()]
    lines = [f"Files: {', '.join(splits)}."] if splits else []
    if examples := counts.get("examples"):
        listed = ", ".join(f"{name} {count:,}" for name, count in examples.items())
        lines += [f"Examples: {listed}."]
    return lines or ["None here: the weights were imported."]


def _describe_held_out(corpus: Mapping[str, Any]) -> str:
    files = corpus.get("held_out_files")
    return f"`{files}`" if files else f"{corpus.get('held_out', 0):.1%}"


def _name_path(split: Any) -> str:
    return str(split.get("path", split)) if isinstance(split, Mapping) else str(split)


def find_architecture(folder: Path) -> str:
    """Finds the class of transformers that a folder's weights are of; "": it names none."""
    path = folder / "config.json"
    return [*((read_json(path) if path.exists() else {}).get("architectures") or ()), ""][0]


def _describe_use(facts: Facts, folder: Path) -> list[str]:
    if not facts.model_type:
        return [f"The files are a release of kind `{facts.kind}`."]
    if facts.pool:
        lines = ["from sentence_transformers import SentenceTransformer"]
        lines += ['model = SentenceTransformer("this folder")']
    else:
        exact = find_architecture(folder)
        autos = (auto for end, auto in AUTO_CLASSES.items() if exact.endswith(end))
        name = facts.architecture or next(autos, "AutoModel")
        lines = [f"from transformers import AutoTokenizer, {name}"]
        lines += [f'model = {name}.from_pretrained("this folder")']
        lines += ['tokenizer = AutoTokenizer.from_pretrained("this folder")']
        if name == "AutoModelForMaskedLM" and exact.endswith("ForPreTraining"):
            lines += [f"# {exact} loads the head of next sentences, too."]
    # The folder's name is for whoever downloads it to choose.
    again = "python -m pretrain.convert --source=THIS_FOLDER --workdir=runs/again"
    if parts := facts.tuned.list_parts():  # the head is no run's to begin with
        again += f" --ignore='({'|'.join(parts)}).*'"
    return [*(f"    {line}" for line in lines), "", f"Back in Quartet: `{again}`."]


def _describe_origin(origin: Mapping[str, Any]) -> list[str]:
    if not origin:
        return ["Trained from random weights."]
    place = origin.get("address") or Path(str(origin.get("folder", ""))).name
    if "system" not in origin:
        return [f"Began with the weights of the run `{place}`."]
    files = origin.get("files") or {}
    lines = [f"Began with the weights of `{place}` ({origin.get('system')}, {origin.get('kind')})."]
    return [*lines, "", *(f"- `{name}`: sha256 `{digest}`" for name, digest in files.items())]
