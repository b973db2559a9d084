"""Kinds of tasks: how examples become rows, what is trained on them, how well it was learned.

Adding one is a file here, named by `config.task.name`, with two classes:

    Form(inputs, examples, **fields)    on the host; `examples` are the training set's
        arrays(examples) -> {name: array}     what `Task` reads; an entry for each row
        training(examples) -> {name: array}   the same of the training set, if it is not `arrays`
        scores(examples, outputs) -> {metric: value}
        lines(examples, outputs) -> [dict]    what predict writes of each example
        head() -> fields of Task              that follow from the data, as how many classes
        kept() -> JSON                        what `again(inputs, **kept)` makes a Form of
        settle(values)                        takes what is chosen on the evaluation that counts,
                                              after training, if there is such
        notes: list of what the user should know, as how many texts were cut
    Task(backbone, **fields)            a Linen module, as an objective
        __call__(batch, *, train) -> Metrics  see pretrain.objectives
        predict(batch) -> {name: array}       an entry for each row; what `scores` reads
        flops(B, L) -> float

An example is a dict, see `finetune.datasets`.  Several rows may come of one example.
"""

from types import ModuleType

from modules import plugins


def kind(name: str) -> ModuleType:
    """Imports the kind of task of this name.

    Raises:
        plugins.UnknownNameError: no file of finetune/tasks has this name.
    """
    return plugins.load("finetune.tasks", name, "Task")
