"""Heads of fine-tuned runs, and the classes of Hugging Face's library that compute the same.

A system says in its `HEADS` which classes it has.  A head that none of them computes stays behind,
with the reason, and the backbone goes out alone.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from modules.heads import choose_summary
from pretrain.conversion.name_map import Rows, Shapes, Table, expand_rows
from pretrain.inference.run import Run
from pretrain.inference.text_format import format_name, load_format
from pretrain.runtime.json_files import read_json
from pretrain.runtime.run_config import TASK

LANGUAGE_MODEL = "encoder/language_model_head/"  # trained along with a task


class Learned(NamedTuple):
    """Says what kinds of tasks have in common.

    Attributes:
        kind: of what is learned; `HEADS` of the systems are by this.
        pipeline: what Hugging Face calls it.
        problem: `problem_type` of their config.json; "": it has none.
    """

    kind: str
    pipeline: str
    problem: str = ""


LEARNED = {  # by `task.name`
    "classify": Learned("class", "text-classification", "single_label_classification"),
    "distil": Learned("class", "text-classification", "single_label_classification"),
    "regress": Learned("number", "text-classification", "regression"),
    "rank": Learned("number", "text-ranking", "regression"),
    "choice": Learned("choice", "multiple-choice"),
    "tag": Learned("tags", "token-classification"),
    "span": Learned("span", "question-answering"),
}
CONDITIONAL = "conditional_span"  # the kind of a span whose end depends on its start


@dataclasses.dataclass(frozen=True)
class TaskHead:
    """A class of theirs that computes what is above our backbone.

    Attributes:
        name: of the class.
        rows: its arrays and the task's parameters, see `name_map`.
        summary, pool: of the `Classifier` that it computes; "": it reads every position.
        dropout: the field of config.json that has the head's dropout; "": there is none.
        fields: further ones of config.json.
        lacks: parameters of ours that it has no array for.
        bias: its last layer has one.
        model_type: of the releases that have the class; "": all of the system's.
    """

    name: str
    rows: Rows
    summary: str = ""
    pool: str = ""
    dropout: str = ""
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    lacks: Sequence[str] = ()
    bias: bool = True
    model_type: str = ""


Heads = Mapping[str, Sequence[TaskHead]]
ROW_CLASSES = {  # the ends of their names
    "class": "SequenceClassification",
    "number": "SequenceClassification",
    "choice": "MultipleChoice",
}


def last_layer(theirs: str, ours: str = "head/w_DC head/bias_C") -> dict[str, tuple[str, str]]:
    """Returns the rows of the layer that scores classes; `theirs` is its name."""
    weight, bias = ours.split()
    return {
        weight: (f"{theirs}.weight", weight[:-3:-1]),  # PyTorch's axes are [out, in]
        bias: (f"{theirs}.bias", bias[-1]),
    }


def hidden_layer(theirs: str) -> dict[str, tuple[str, str]]:
    """Returns the rows of the layer that a head has before its last one."""
    return {
        "head/Dense_0/kernel": (f"{theirs}.weight", "OI -> IO"),
        "head/Dense_0/bias": (f"{theirs}.bias", "O -> O"),
    }


def list_row_heads(name: str, last: str, layers: Mapping[str, Rows], **fields: Any) -> Heads:
    """Lists the classes that read a row's one state.

    Args:
        name: of the system in their names, as "Bert".
        last: the name of the last layer.
        layers: the rows of what is before it, by `summary`.
        fields: of `TaskHead`.
    """
    rows = {summary: {**last_layer(last), **layer} for summary, layer in layers.items()}
    return {
        kind: [TaskHead(f"{name}For{end}", x, summary, **fields) for summary, x in rows.items()]
        for kind, end in ROW_CLASSES.items()
    }


def list_token_heads(
    name: str, answers: str = "QuestionAnswering", dropout: str = "", **fields: Any
) -> Heads:
    """Lists the classes that read every state: of tags, with a dropout, and of spans' two ends."""
    tags = last_layer("classifier", "emissions/w_DC emissions/bias_C")
    ends = last_layer("qa_outputs", "head/ends/w_DF head/ends/bias_F")
    return {
        "tags": [TaskHead(f"{name}ForTokenClassification", tags, dropout=dropout, **fields)],
        "span": [TaskHead(f"{name}For{answers}", ends, **fields)],
    }


class TunedHead(NamedTuple):
    """The head of a fine-tuned run.

    Attributes:
        task: the section `task`, with labels and the like of the data.
        head: the class that computes it; None: there is none.
        reason: why there is none.
    """

    task: Mapping[str, Any]
    head: TaskHead | None
    reason: str = ""

    @property
    def pipeline(self) -> str:
        return LEARNED[self.task["name"]].pipeline if self.head else ""

    def list_parts(self) -> list[str]:
        """Lists the beginnings of the names of the head's arrays that no backbone has."""
        # A pooler is of their backbone, and tells nothing of a head.
        names = [theirs for theirs, *_ in self.head.rows.values()] if self.head else []
        return sorted({name.partition(".")[0] for name in names if ".pooler." not in name})

    def list_config_fields(self) -> dict[str, Any]:
        """Lists the fields of their config.json that are of the head."""
        if self.head is None:
            return {}
        fields = {"architectures": [self.head.name], **self.head.fields}
        if self.head.dropout:
            fields[self.head.dropout] = get_fields(self.task, "head").get("dropout", 0.1)
        learned = LEARNED[self.task["name"]]
        # Their pipelines call the one number that is predicted so.
        labels = ["LABEL_0"] if learned.kind == "number" else self.task.get("labels", ())
        if labels:
            fields["id2label"] = {str(i): str(label) for i, label in enumerate(labels)}
            fields["label2id"] = {str(label): i for i, label in enumerate(labels)}
        return fields | ({"problem_type": learned.problem} if learned.problem else {})


def find_head(run: Run, heads: Heads, shapes: Shapes) -> TunedHead:
    """Finds the class that computes the head of a fine-tuned run.

    Args:
        heads: of the system, by kinds of what is learned.
        shapes: of all parameters of the run.
    """
    path = run.workdir / TASK
    task = read_json(path) if path.exists() else {}
    if "tasks" in task:
        names = ", ".join(task["tasks"])
        reason = f"a folder has one head, and the run has those of {names}: mixture.only tunes one"
        return TunedHead({}, None, reason)
    if reason := refuse_task(task):
        return TunedHead(task, None, reason)
    kind = CONDITIONAL if task.get("conditional") else LEARNED[task["name"]].kind
    classes = heads.get(kind, ())
    if not classes:
        return TunedHead(task, None, f"transformers has no class with a head of task.name={kind!r}")
    reasons = [refuse_head(run, task, head, shapes) for head in classes]
    for head, reason in zip(classes, reasons, strict=True):
        if not reason:
            return TunedHead(task, head)
    return TunedHead(task, None, reasons[0])


def get_fields(task: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Returns the fields of a section of the task that are set."""
    return {name: x for name, x in (task.get(section) or {}).items() if x is not None}


def refuse_task(task: Mapping[str, Any]) -> str:
    """Says what of a task no class computes; "" if some may."""
    encoder = get_fields(task, "encoder")
    if task.get("name") not in LEARNED:
        return f"transformers has no class for task.name={task.get('name')!r}"
    if (name := encoder.get("name", "backbone")) != "backbone":
        return f"transformers has no class with task.encoder.name={name!r} under a head"
    if encoder.get("window"):
        return "transformers has no class that reads a row by windows, as task.encoder.window does"
    if task.get("both"):
        return "transformers has no class that reads a pair in both orders, as task.both does"
    if get_fields(task, "head").get("crf"):
        return "transformers has no class with a CRF, as task.head.crf is"
    return ""


def refuse_head(run: Run, task: Mapping[str, Any], head: TaskHead, shapes: Shapes) -> str:
    """Says why a class does not compute the head of a run; "" if it does."""
    fields = get_fields(task, "head")
    ours = dict(
        summary=fields.get("summary") or choose_summary(run.backbone),
        pool=fields.get("pool") or load_format(format_name(run.config)).pool,
        pool_last=fields.get("pool_last", 0),
    )
    theirs = dict(summary=head.summary, pool=head.pool, pool_last=0) if head.pool else {}
    for name, value in theirs.items():
        if ours[name] != value:
            return f"{head.name} has {name}={value!r}, and this run task.head.{name}={ours[name]!r}"
    if not head.bias and "head/bias_C" in shapes:
        return f"{head.name} has no bias: fine-tune with task.head.bias=False"
    rest = [x for x in shapes if is_of_task(x) and x not in head.rows]
    return f"{head.name} has no place for {', '.join(rest)}" if rest else ""


def is_of_task(name: str) -> bool:
    """Tells if a parameter is of what its task computes above the backbone."""
    return not name.startswith(("backbone/", LANGUAGE_MODEL))


def extend_table(table: Table, head: TaskHead, shapes: Shapes) -> Table:
    """Adds a head's arrays to a table of the backbone's.

    Parameters that the class has no place for, or another one in it, are absent.
    """
    links = expand_rows(head.rows, shapes)
    theirs = {link.theirs for link in links}
    why = f"{head.name} has no such part"
    absent = {name: why for name in (*head.lacks, *filter(is_left, shapes)) if name in shapes}
    # As a pooler of BERT's, of which theirs has one, where the head has a layer of its own.
    absent |= {
        link.ours: f"{head.name} has the head's own layer there"
        for link in table.links
        if link.theirs in theirs
    }
    rest = [link for link in table.links if link.ours not in absent]
    copies = {name: of for name, of in table.copies.items() if name not in theirs}
    return dataclasses.replace(
        table, links=[*rest, *links], copies=copies, absent={**table.absent, **absent}
    )


def is_left(name: str) -> bool:
    return name.startswith(LANGUAGE_MODEL)


def select_backbone(
    shapes: Shapes, reason: str, say: Callable[[str], None]
) -> dict[str, tuple[int, ...]]:
    """Selects the parameters of the backbone, and says that the others stay behind, and why."""
    backbone = {name: shape for name, shape in shapes.items() if name.startswith("backbone/")}
    say(f"left behind: {len(shapes) - len(backbone)} parameters of the task: {reason}")
    return backbone
