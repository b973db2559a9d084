"""Loads a trained run and its weights: the best where it kept them, else the newest."""

import pathlib
from typing import Any

import jax
from flax import linen as nn
from ml_collections import ConfigDict

import modules
from modules.backbones import init_params
from modules.heads import language_model
from pretrain.checkpoint import verification
from pretrain.checkpoint.checksums import describe
from pretrain.checkpoint.named_leaves import Leaves, flatten, nest
from pretrain.checkpoint.paths import list_steps
from pretrain.checkpoint.transfer import describe_leaves, load
from pretrain.data.tokenizers import Tokenizer, registry
from pretrain.distributed.sharding import Layout
from pretrain.inference.run import Run
from pretrain.runtime.run_config import read_config, require_run
from pretrain.runtime.sections import call_section, name_section


def load_run(workdir: str | pathlib.Path, *, needs_backbone: bool = True) -> Run:
    """Loads the run in a folder, without its weights; nothing there is changed.

    Raises:
        UserError: the folder holds no run, or one without a backbone that is needed.
    """
    # Orbax takes no relative path.
    workdir = pathlib.Path(workdir).expanduser().absolute()
    require_run(workdir)
    config = ConfigDict(read_config(workdir))
    backbone = None
    # A task's own network may read words without a backbone.
    if config.model or needs_backbone:
        execution = config.get("execution")
        backbone = call_section("model", modules.build, config.model, execution=execution)
    return build_run(workdir, config, registry.load(workdir / "tokenizer"), backbone)


def build_run(
    workdir: pathlib.Path, config: ConfigDict, tokenizer: Tokenizer, backbone: nn.Module | None
) -> Run:
    """Builds a run of its parts, and its head as the recipe says."""
    if backbone is None:
        return Run(workdir, config, tokenizer, None, None)
    with name_section("head"):
        head = language_model.build(backbone, **config.get("head", {}))
    return Run(workdir, config, tokenizer, backbone, head)


def weights_folder(run: Run) -> pathlib.Path:
    """Returns the folder of the weights that count: `best` where the run kept these."""
    best = run.workdir / "best"
    return best if list_steps(best / "checkpoints") else run.workdir


def weights_key(run: Run) -> str:
    """Returns the part of the train state that is used: parameters, or their average."""
    # Weights in `best` were evaluated, so they are the average already: it has no other.
    return "average" if describe_leaves(weights_folder(run), "average/") else "params"


def load_weights(run: Run, like: Any, *within: str) -> tuple[Any, int]:
    """Loads the weights of a run that count.

    Args:
        like: decides shapes and layout.
        within: folders of parameters as "backbone/", or names of some; none: all parameters.

    Returns:
        (a tree like `like`, the step of the weights).

    Raises:
        UserError: there is no checkpoint, none verifies, or its leaves are others.
    """
    name = weights_key(run)
    folders = tuple(f"{name}/{x}" for x in within or ("",))
    state, step = load({name: like}, weights_folder(run), folders)
    return state[name], step


def load_named_params(run: Run, layout: Layout, within: str = "") -> tuple[Leaves, int]:
    """Loads the parameters of a run that count in a folder, by name, whatever their shapes.

    Args:
        within: "" for all parameters, or a folder of them as "backbone/".

    Returns:
        (parameters by name, the step that they are of).

    Raises:
        UserError: there is no checkpoint, or none verifies.
    """
    folder, key = weights_folder(run), f"{weights_key(run)}/"
    # As the checkpoint has them, which need not be as the recipe would make them.
    like = layout.add_shardings(nest(describe_leaves(folder, key + within)))
    state, step = load(like, folder, key + within)
    return {name.removeprefix(key): x for name, x in flatten(state).items()}, step


def load_backbone_params(run: Run, layout: Layout) -> tuple[Any, int]:
    """Loads the parameters of the run's backbone alone, and the step that they are of."""
    shapes = jax.eval_shape(lambda: init_params(run.backbone))
    params, step = load_weights(run, layout.add_shardings({"backbone": shapes}), "backbone/")
    return params["backbone"], step


def hash_params(params: Any) -> str:
    """Returns a digest of parameters, their names and all of their numbers."""
    return verification.add_digest(describe(flatten(params))[0])["digest"]


def load_head_params(run: Run, layout: Layout) -> Any:
    """Loads the parameters of the run's language-model head; {}: it has none."""
    if not (shapes := language_model.param_shapes(run.head)):
        return {}
    return load_weights(run, layout.add_shardings({"head": shapes}), "head/")[0]["head"]
