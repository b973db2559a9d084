"""A recipe's training step compiled ahead of time, for chips that are not here and without text."""

import dataclasses
import functools
import pathlib
import re
import tempfile
import time
from typing import Any

import jax
from flax import linen as nn
from flax.core import FrozenDict

import modules
from modules import plugins
from pretrain import objectives
from pretrain.aot.chips import Slice
from pretrain.aot.hlo import Program
from pretrain.aot.hlo_cost import list_saved_activations
from pretrain.data.batches import BatchShapes
from pretrain.data.batches.phases import configure_training
from pretrain.data.tokenizers import SPECIAL_NAMES
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section, name_section
from pretrain.training import optimizer
from pretrain.training.compiled_steps import Steps
from pretrain.training.gradient_norms import choose_norms
from pretrain.training.state_sizes import count_device_bytes, count_numbers
from pretrain.training.train_config import TrainConfig


@dataclasses.dataclass(frozen=True)
class Step:
    """A compiled training step, or what there is of one that does not fit.

    Attributes:
        steps: whose step it is.
        data: the shapes of its batches.
        program: what runs on each chip.
        memory: bytes of each chip by what they are for; of a step that does not fit, what is known.
        refusal: the compiler's line where it does not fit; "" where it does.
        seconds: it took to compile.
    """

    steps: Steps
    data: BatchShapes
    program: Program
    memory: dict[str, float]
    refusal: str
    seconds: float

    @property
    def flops(self) -> float:
        """Returns the FLOPs of the model on each chip, counted from the recipe."""
        return self.steps.objective.flops(self.data.B, self.data.L) / self.steps.layout.mesh.size

    @property
    def whole(self) -> dict[str, int]:
        """Returns the bytes of parameters and optimiser that every chip has a whole copy of."""
        like = self.steps.like
        return {
            "parameters": _count_replicated(like.params),
            "optimiser": _count_replicated(like.opt),
        }


def build_batch_shapes(config) -> list[BatchShapes]:
    with name_section("batches"):
        return configure_training(config.batches, config.get("first_phase"))


def build_objective(config) -> nn.Module:
    """Builds the objective of a recipe, its special tokens in any order.

    Raises:
        UserError: the recipe does not build.
    """
    execution = config.get("execution")
    backbone = call_section("model", modules.build, config.model, execution=execution)
    parts = dict(backbone=backbone, head=config.get("head"), execution=execution)
    objective = call_section("objective", objectives.build, config.objective, **parts)
    # Which id a special token has changes no program, only that there is one.
    special: FrozenDict[str, int] = FrozenDict({name: i for i, name in enumerate(SPECIAL_NAMES)})
    return objective.clone(special=special)


def build_steps(config, place: Slice) -> Steps:
    """Builds a recipe's steps on a slice, its mesh over all of it; compiles nothing yet.

    Raises:
        UserError: the recipe does not build, or its rows do not divide over the chips.
    """
    objective = build_objective(config)
    with name_section("train"):
        options = plugins.construct(TrainConfig, **config.train)
    with name_section("optim"):
        tx, _ = optimizer.make(**config.optim)
    layout = Layout(call_section("mesh", make_mesh, config.mesh, devices=place.devices))
    train = build_batch_shapes(config)
    for data in train:  # a later phase may have longer rows
        objectives.check_length(objective.backbone, data.L)
    return Steps(
        objective,
        tx,
        layout,
        train,
        seed=config.seed,
        parts=options.parts,
        average=options.average,
        norms=choose_norms(options.norms, config.optim),
    )


def compile_step(steps: Steps, data: BatchShapes, place: Slice) -> Step:
    """Compiles the training step on such batches.

    Raises:
        UserError: the compiler fails for another reason than memory.
    """
    begin, refusal, stats = time.monotonic(), "", None
    # From shapes: neither parameters nor a batch are made, which would not fit here.
    lowered = steps.lower(data)
    with tempfile.TemporaryDirectory() as folder:
        dump: Any = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        try:
            options = {**dump, **place.compiler_options}
            stats = lowered.compile(compiler_options=options).memory_analysis()
        except jax.errors.JaxRuntimeError as error:
            refusal = str(error).splitlines()[0]
        # Not `as_text`: it fails on some large programs, and of those that do not fit is none.
        texts = list(pathlib.Path(folder).glob("*after_optimizations.txt"))
        if not texts or (refusal and "RESOURCE_EXHAUSTED" not in refusal):
            raise UserError(f"the compiler: {refusal or 'left no text of what it made'}")
        # The compiler compiles the constants that it folds, too: their texts are smaller.
        largest = max(texts, key=lambda path: path.stat().st_size)
        program = Program(largest.read_text())
    memory = count_memory(program, stats)
    # The compiler for GPUs takes any size; the card would not.
    if not refusal and (total := sum(memory.values())) > place.chip.memory:
        room = place.chip.memory / 2**30
        refusal = f"the program ({total / 2**30:.1f}G) exceeds the {room:.1f}G of a card"
    return Step(steps, data, program, memory, refusal, time.monotonic() - begin)


KINDS = {  # an argument's name -> what it is for
    r"state\.params": "parameters",
    r"state\.opt": "optimiser",
    r"state\.carry": "carry",
    r"state\.average": "average",
    r"batch": "batch",
}


def count_memory(program: Program, stats: Any = None) -> dict[str, float]:
    """Counts the bytes of a chip by what they are for.

    Args:
        stats: what the compiler says of the program it has finished; without it only arguments
            and activations are told.
    """
    sizes = dict.fromkeys((*KINDS.values(), "activations"), 0.0)
    for i in program.parameters(program.entry):
        name = next((kind for start, kind in KINDS.items() if re.match(start, i.op_name)), "batch")
        sizes[name] += i.bytes
    sizes["activations"] = float(sum(x.bytes for x in list_saved_activations(program)))
    if stats:
        # The compiler's temporaries hold the activations, too; an aliased output is an argument.
        rest = stats.temp_size_in_bytes - sizes["activations"]
        sizes["temporaries"] = rest + stats.output_size_in_bytes - stats.alias_size_in_bytes
        sizes["program"] = stats.generated_code_size_in_bytes
    return sizes


def _count_replicated(tree) -> int:
    # On a mesh of one chip every array is whole, which says nothing.
    leaves = [x for x in jax.tree.leaves(tree) if x.sharding.mesh.size > 1]
    return count_device_bytes([x for x in leaves if x.sharding.is_fully_replicated])


def count_parameters(steps: Steps) -> int:
    return count_numbers(steps.like.params)


def count_recipe_parameters(config) -> int:
    """Counts the parameters of a pretraining recipe by their shapes, on no device.

    Raises:
        UserError: the recipe does not build.
    """
    objective, data = build_objective(config), build_batch_shapes(config)[-1]
    rngs = {name: jax.random.key(0) for name in ("params", "dropout", "corrupt")}
    init = functools.partial(objective.init, train=False)
    return count_numbers(jax.eval_shape(init, rngs, data.shapes())["params"])
