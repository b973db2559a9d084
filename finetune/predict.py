"""Predicts the examples of a file:  python -m finetune.predict --workdir=runs/sst2 in out

`in` is read as the run's recipe has it, a block at a time; a table need not have the labels.  `out`
has a line of JSON for each example, in the order of `in`: its place, its "id" if it has one, and
the prediction; an out.csv or out.tsv has a row of these for each.  As `in`, - is plain text from
standard input, a line for each example, with tabs between the texts of one; so is a file.txt, and
--text='a gripping movie' is such a line.  As `out`, - or nothing is standard output.  With
--submission=glue it is "index<TAB>prediction", as that benchmark's server takes it, with
--submission=squad an object from ids to answers.  Where `in` has the labels, too, the task's
metrics are printed.  --task=sst1 names the one of several tasks to predict.
--with=runs/backward averages the probabilities of further runs, as those of ULMFiT's directions.
"""

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import jax
from absl import flags

from finetune import job
from finetune.prediction import input_formats, plain_texts, streaming
from finetune.prediction.ensemble import Ensemble
from finetune.prediction.predictor import Predictor, predict_blocks
from finetune.prediction.submissions import choose_writer, open_draft
from finetune.several import parts
from pretrain import cli
from pretrain.cli import arguments
from pretrain.data.corpus import text_files
from pretrain.distributed import processes
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.runtime.errors import UsageError
from pretrain.runtime.progress import say

for name in ("workdir", "overwrite", "text", *arguments.EXAMPLES):
    flags.declare_key_flag(name)
SUBMISSION = flags.DEFINE_enum("submission", "", ["", "glue", "squad"], "As a benchmark wants it.")
WITH = flags.DEFINE_list("with", [], "Fine-tuned runs to average probabilities with: runs/b,runs/c")
SCORE = flags.DEFINE_bool("score", True, "Print metrics where labels are there; holds those rows.")


def parse_words(words: list[str]) -> tuple[str, str]:
    """Returns the file to read, "" of --text, and the one to write.

    Raises:
        UsageError: there are too many words, or too few.
        UserError: the file to write is there, and --overwrite is not given.
    """
    source, *rest = ["", *words] if arguments.TEXT.value else (words or [""])
    if len(rest) > 1 or not (source or arguments.TEXT.value):
        raise UsageError(
            "name the file to predict, and the one to write: in.tsv out.jsonl; or give a text, as "
            "--text='A fine film'"
        )
    out = rest[0] if rest else plain_texts.STDIN
    if out != plain_texts.STDIN:
        arguments.check_unused(Path(out))
    return source, out


def list_folders() -> list[Path]:
    """Lists the folders of the runs to predict with, that of --workdir first.

    Raises:
        UsageError: a run is named twice.
    """
    folders = [Path(str(x)).expanduser().resolve() for x in (cli.WORKDIR.value, *WITH.value)]
    for i, folder in enumerate(folders):
        if folder in folders[:i]:
            raise UsageError(f"--with={WITH.value[i - 1]}: that run is averaged already")
    return folders


def is_plain(source: str, format: str, fields: Mapping[str, Any]) -> bool:
    """Tells if a source is texts alone, a line for each: no table has the suffix .txt."""
    if source in ("", plain_texts.STDIN):
        return True
    return format == "table" and not fields.get("kind") and Path(source).suffix == ".txt"


def read_lines(source: str) -> Iterable[str]:
    """Reads texts a line at a time, from standard input or a file.

    Raises:
        UserError: there is no such file, or it is no text.
    """
    if source == plain_texts.STDIN:
        return text_files.read_input_lines()
    return text_files.read_whole_lines(Path(source))


def open_target(out: str) -> contextlib.AbstractContextManager[IO[str]]:
    """Opens the file to write, or standard output."""
    if out == plain_texts.STDIN:
        return contextlib.nullcontext(sys.stdout)
    return open_draft(Path(out))


def main(words: list[str]) -> None:
    source, out = parse_words(words)
    open_writer = choose_writer(SUBMISSION.value, out)  # first: an ending may be refused
    processes.join()
    runs = [job.load_job(folder, arguments.TASK.value) for folder in list_folders()]
    data = parts.list_sections(runs[0].run.config)[runs[0].name].data
    format, fields = input_formats.resolve_format(data, *arguments.read_format())
    members = [Predictor(tuned, Layout(make_mesh()), arguments.ROWS.value) for tuned in runs]
    predictor = Ensemble(members) if len(members) > 1 else members[0]
    first = jax.process_index() == 0
    # Every process predicts, as a batch spans all devices; the first one writes.
    target = open_target(out) if first else open(os.devnull, "w")  # noqa: SIM115
    with target as file, open_writer(file) as write:
        notify = say if first else (lambda _: None)
        if is_plain(source, format, fields):
            lines, total = arguments.TEXT.value or read_lines(source), len(arguments.TEXT.value)
            columns = input_formats.list_columns(data)
            blocks = plain_texts.read_blocks(lines, runs[0].data, source or "--text", columns)
        else:
            total = streaming.count_examples(source, format, fields)
            blocks = streaming.read_blocks(source, format, fields)
        values = predict_blocks(predictor, blocks, write, notify, SCORE.value, total)
    if first and values:
        scores = "  ".join(f"{name} {value:.4f}" for name, value in values.items())
        print(scores, file=sys.stderr if out == plain_texts.STDIN else sys.stdout)


if __name__ == "__main__":
    cli.run(main, required=["workdir"], has_words=True)
