"""Fine-tuned runs with random weights, and what transformers makes of what they export.

python -m tests.support.tuned_runs FOLDER     writes the exports, each with the rows to read
PEER_PYTHON -m tests.support.transformers_peer FOLDER/*     adds its outputs
python -m tests.support.tuned_runs FOLDER FIXTURE      collects these
"""

import functools
import hashlib
import pathlib
import sys
from typing import Any

import jax
import numpy as np

from finetune import job
from pretrain.checkpoint import named_leaves, streaming_writer
from pretrain.conversion import exporter
from pretrain.data.tokenizers import roberta_bpe, wordpiece
from pretrain.inference.text_format import load_format
from pretrain.runtime import run_config
from pretrain.runtime.json_files import read_json, write_json
from tests.support import (
    array_mapping,
    bert_release,
    gpt_releases,
    imported_release,
    tokenizer_data,
    transformer_inputs,
)

L = 16
WIDTHS = dict(D=16, H=2, K=8, N=2)
BERT = dict(name="transformer", **WIDTHS, F=24, L=L, **transformer_inputs.BERT)
ROBERTA = BERT | dict(S=1, pooler=False)
GPT = dict(name="transformer", **WIDTHS, F=64, L=L)
XLNET = dict(name="two_stream", **WIDTHS, F=24, M=0, untie_r=True)
CLASSIFY = dict(name="classify", labels=["no", "maybe", "yes"])
TASKS: dict[str, dict[str, Any]] = {
    "classify": CLASSIFY,
    "bare": CLASSIFY | dict(head=dict(bias=False)),
    "relu": CLASSIFY | dict(head=dict(summary="relu")),
    "gelu": CLASSIFY | dict(head=dict(summary="gelu_erf")),
    "regress": dict(name="regress"),
    "choice": dict(name="choice", options=2),
    "tag": dict(name="tag", labels=["O", "B-A", "I-A"], scheme="iob2", head=dict(dropout=0.3)),
    "span": dict(name="span", conditional=False, unanswerable=True, stride=2, max_query=4),
    "conditional": dict(name="span", conditional=True, unanswerable=True, stride=2, max_query=4),
}
# Text format, model, and tasks.
SYSTEMS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "bert": ("bert", BERT, ["classify", "regress", "choice", "tag", "span"]),
    "bert_bare": ("bert", BERT | dict(pooler=False), ["classify"]),
    "distilbert": ("bert", BERT | dict(S=0, pooler=False), ["relu", "tag", "span"]),
    "electra": (
        "bert",
        BERT | dict(pooler=False, embedding_size=8),
        ["gelu", "choice", "tag", "span"],
    ),
    "roberta": ("roberta", ROBERTA, ["classify", "choice", "tag", "span"]),
    "gpt2": ("gpt", GPT | transformer_inputs.GPT2, ["bare", "tag", "span"]),
    "gpt1": ("gpt", GPT | transformer_inputs.GPT1, ["bare"]),
    "xlnet": ("xlnet", XLNET, ["classify", "choice", "tag", "span", "conditional"]),
}
CASES = [(system, task) for system, (_, _, tasks) in SYSTEMS.items() for task in tasks]
TEXTS = ["a b c", "bad cab ace", "d e"]
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "classify": [dict(texts=[x, "b c"], label=None, where="") for x in TEXTS],
    "choice": [dict(texts=[x], choices=["b", "c a"], label=None, where="") for x in TEXTS],
    "tag": [dict(words=x.split(), labels=None, where="") for x in TEXTS],
    "span": [
        dict(id="", question="a b", context=x, answers=[], impossible=False, where="")
        for x in TEXTS
    ],
}
EXAMPLES |= dict.fromkeys(("regress", "relu", "gelu", "bare"), EXAMPLES["classify"])
EXAMPLES |= dict(conditional=EXAMPLES["span"])


def build_tokenizer(system: str):
    if system in ("gpt1", "gpt2"):
        return gpt_releases.vocabulary("hugging_face_gpt1" if system == "gpt1" else "hugging_face")
    text_format, *_ = SYSTEMS[system]
    if text_format == "roberta":
        folder = imported_release.FIXTURES / "roberta"
        return roberta_bpe.Tokenizer.read(folder / "vocab.json", folder / "merges.txt")
    is_bert = text_format == "bert"
    return wordpiece.Tokenizer(bert_release.PIECES) if is_bert else tokenizer_data.unigram()


def write_run(system: str, task: str, workdir: pathlib.Path):
    """Writes a fine-tuned run; returns (it opened, its rows, its parameters)."""
    text_format, model, _ = SYSTEMS[system]
    tokenizer, marks = build_tokenizer(system), load_format(text_format).new_tokens
    config = dict(
        text_format=text_format,
        model=model | dict(V=tokenizer.V + len(marks)),
        batches=dict(L=L),
        train=dict(average=0.0),
    )
    run_config.write_config(workdir, config)
    write_json(workdir / "task.json", TASKS[task])
    tokenizer.save(workdir / "tokenizer")
    tuned = job.load_job(workdir)
    rows = tuned.data.arrays(EXAMPLES[task])
    # A long context has several rows.
    rows["weight_B"] = np.ones(len(next(iter(rows.values()))), np.float32)
    init = functools.partial(tuned.task.init, train=False)
    shapes = jax.eval_shape(init, jax.random.key(0), rows)["params"]
    leaves = {name: x.shape for name, x in named_leaves.flatten(shapes).items()}
    params = array_mapping.randomly(leaves)
    streaming_writer.write(workdir, 0, ((f"params/{name}", x) for name, x in params.items()))
    return tuned, rows, named_leaves.nest(params)


def export(workdir: pathlib.Path, folder: pathlib.Path, **options: Any) -> list[str]:
    """Exports a run; returns the lines that it says."""
    lines: list[str] = []
    exporter.export_weights(workdir, folder, lines.append, **options)
    return lines


def hash_weights(folder: pathlib.Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def write_inputs(rows: dict[str, np.ndarray], folder: pathlib.Path) -> None:
    """Writes the rows as a model of transformers reads them."""
    names = {"tokens": "tokens_B", "valid": "valid_B", "segments": "segments_B"}
    found = {x: rows[k] for x, y in names.items() for k in rows if k.startswith(y)}
    config = read_json(folder / "config.json")
    if "gpt" in config["model_type"]:  # whose classes find the end of a row by what pads it
        found["tokens"] = np.where(found["valid"], found["tokens"], config["pad_token_id"])
    if "context_BL" in rows:
        marks_BL = np.arange(L) == rows["null_B"][:, None]
        found |= dict(forbidden=~(rows["context_BL"] | marks_BL), null=rows["null_B"])
    np.savez(folder / "inputs.npz", **found)


def collect(folder: pathlib.Path, fixture: pathlib.Path) -> None:
    """Collects what transformers made of the exports in a folder."""
    arrays = {}
    for system, task in CASES:
        place, case = folder / f"{system}-{task}", f"{system}/{task}"
        outputs = np.load(place / "outputs.npz")
        arrays |= {f"{case}/{k}": outputs[k] for k in outputs if k not in ("states", "mems")}
        arrays[f"{case}/sha256"] = np.array(hash_weights(place))
    np.savez_compressed(fixture, **arrays)


if __name__ == "__main__":
    place = pathlib.Path(sys.argv[1])
    if len(sys.argv) > 2:
        collect(place, pathlib.Path(sys.argv[2]))
    for case in CASES * (len(sys.argv) == 2):
        name = "-".join(case)
        _, rows, _ = write_run(*case, place / "runs" / name)
        print(*export(place / "runs" / name, place / name), sep="\n")
        write_inputs(rows, place / name)
