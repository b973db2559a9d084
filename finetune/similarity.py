"""Judges sentence vectors:  python -m finetune.similarity --workdir=runs/x --pairs=sts-test.csv

`--pairs` names files of scored pairs, or folders of STS 2012 to 2016 (`finetune.datasets.
similarity`).  Printed are Spearman's correlations of cosines and scores, times 100, and how far
the vectors have collapsed.  Nothing is trained.  --against=runs/y,runs/z puts further runs beside
the first; --vectors=glove.txt judges means of words' vectors, which need no run.  --out=x.json
writes all numbers, and draws them in x.png.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from absl import flags

from finetune.sentences import SentenceReader, judgement
from finetune.sentences.pictures import draw_judgements
from finetune.sentences.readers import RunReader, WordReader
from pretrain import cli
from pretrain.cli import arguments
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.formats.base import explain_write_errors
from pretrain.inference.embedder import Embedder, check_layers
from pretrain.inference.layer_selection import parse_pool
from pretrain.inference.trained_run import load_run
from pretrain.runtime.errors import UsageError
from pretrain.runtime.files import create_folder
from pretrain.runtime.json_files import write_json
from pretrain.runtime.progress import say

flags.declare_key_flag("workdir")
flags.declare_key_flag("overwrite")
flags.declare_key_flag("against")
flags.declare_key_flag("pool")
flags.declare_key_flag("normalize")
PAIRS = flags.DEFINE_list("pairs", [], "Files of scored pairs, or folders: sts-test.csv,STS16")
VECTORS = flags.DEFINE_list("vectors", [], "Files of words' vectors, judged by their means.")
WHITEN = flags.DEFINE_integer("whiten", 0, "Keep and whiten so many directions; 0: all as is.", 0)
POSITIVE = flags.DEFINE_float("positive", 4.0, "Pairs scored higher mean the same (alignment).")
OUT = flags.DEFINE_string("out", "", "A JSON file of all numbers; the picture is a .png beside it.")


def main(_) -> None:
    named = [*filter(None, [cli.WORKDIR.value]), *arguments.AGAINST.value]
    workdirs = [str(x) for x in named]
    if not PAIRS.value or not (workdirs or VECTORS.value):
        raise UsageError("say --pairs=FILE, and --workdir=RUN or --vectors=FILE")
    out = pathlib.Path(OUT.value) if OUT.value else None
    if out and out.suffix != ".json":
        raise UsageError(f"--out={out}: want a name that ends in .json")
    # Before minutes of reading, of which nothing could then be written.
    if out:
        arguments.check_unused(out)
        with explain_write_errors(out):
            create_folder(out.parent)
    pairs, notes = judgement.read_pairs(PAIRS.value)
    for note in notes:
        say(note)
    pool = arguments.POOL.value or "mean"
    post = judgement.Post(arguments.NORMALIZE.value, WHITEN.value)
    readers: list[SentenceReader] = [WordReader(pathlib.Path(x)) for x in VECTORS.value]
    readers = [open_run(x, pool) for x in workdirs] + readers
    judged = {x.name: judgement.judge(x, pairs, post, POSITIVE.value) for x in readers}
    print(format_table(judged))
    if out:
        how = dict(pool=pool, **post._asdict(), positive=POSITIVE.value)
        picture = out.with_suffix(".png")
        with explain_write_errors(out):
            write_json(out, {"settings": how, "runs": judged})
        with explain_write_errors(picture):
            draw_judgements(judged, picture)
        say(f"{out}, {picture}")


def open_run(workdir: str, pool: str) -> RunReader:
    """Opens a run to read sentences with: pretrained, imported or fine-tuned.

    Raises:
        UserError: there is none, or its model has no such pooling.
    """
    run = load_run(workdir)
    choice, kind = parse_pool(pool, count=run.backbone.N + 1)
    check_layers(run.backbone, choice)
    # For a mean the embedder gives the states that are averaged, and which tokens they are of.
    how: dict[str, Any] = dict(marks=True) if kind == "mean" else dict(pool=kind)
    return RunReader(workdir, Embedder(run, Layout(make_mesh()), choice, cut=True, **how))


def format_table(judged: Mapping[str, Mapping[str, Any]]) -> str:
    """Formats a row for each number, and a column for each run."""
    columns = [list_rows(x) for x in judged.values()]
    rows = [["", *judged], *([name, *(x[name] for x in columns)] for name in columns[0])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    )


def list_rows(judged: Mapping[str, Any]) -> dict[str, str]:
    """Lists the numbers of a judgement as they are printed, by what they are."""
    rows = {
        f"{path}, {x['pairs']:,} pairs": f"{x['spearman']:.2f}"
        for path, x in judged["files"].items()
    }
    for task, x in {**judged.get("tasks", {}), "mean of these": judged.get("tasks' mean")}.items():
        rows |= {f"{task}: {name}": f"{value:.2f}" for name, value in (x or {}).items()}
    rows |= {name: f"{judged[name]:.2f}" for name in ("all", "mean", "weighted mean")}
    for k, value in judged["without commonest"].items():
        rows |= {f"all, without {k} tokens": f"{value:.2f}"} if k != "0" else {}
    aligned = judged["alignment"]
    rows["alignment"] = "-" if aligned is None else f"{aligned:.3f}"
    rows |= {name: f"{judged[name]:.3f}" for name in ("uniformity", "mean cosine")}
    rows["first direction's share"] = f"{judged['singular shares'][0]:.3f}"
    return rows | {"effective rank": f"{judged['effective rank']:.1f}"}


if __name__ == "__main__":
    cli.run(main)
