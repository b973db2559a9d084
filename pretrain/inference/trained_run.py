"""A trained run, opened to be used: its recipe, its tokenizer, its backbone and the weights."""

import pathlib
from typing import Any, NamedTuple

import jax
from flax import linen as nn
from ml_collections import ConfigDict

import modules
from modules.backbones import text_mask
from modules.heads import language_model
from pretrain.checkpoint.paths import list_steps
from pretrain.checkpoint.transfer import load
from pretrain.data import tokenizers
from pretrain.data.tokenizers import registry
from pretrain.distributed.sharding import Layout
from pretrain.runtime.errors import UserError
from pretrain.runtime.run_config import read_config
from pretrain.runtime.sections import call_section, name_section


class Run(NamedTuple):
    """What a workdir holds, without the weights."""

    workdir: pathlib.Path
    config: ConfigDict
    tokenizer: tokenizers.Tokenizer
    backbone: Any  # a Linen module; None where a task was learned by a network of its own alone

    @property
    def folder(self) -> pathlib.Path:
        """Where its checkpoints are: those that did best, where it kept these."""
        best = self.workdir / "best"
        return best if list_steps(best / "checkpoints") else self.workdir

    @property
    def head(self) -> language_model.LanguageModelHead:
        """Its language-model head, as its recipe says; of the backbone alone where it says none."""
        with name_section("head"):
            return language_model.build(self.backbone, **self.config.get("head", {}))

    @property
    def trained(self) -> str:
        """Which part of its train state is used: the parameters, or their moving average."""
        average = self.config.train.average and self.folder == self.workdir
        return "average" if average else "params"

    def weights(self, like: Any, within: str = "") -> tuple[Any, int]:
        """All parameters, or those `within` "backbone/" or one alone, and the step they are of.

        Where the run keeps a moving average of them, that.  `like` decides shapes and layout.

        Raises:
            UserError: there is no checkpoint, none verifies, or its leaves are others.
        """
        name = self.trained
        found, step = load({name: like}, self.folder, f"{name}/{within}")
        return found[name], step


def opened(workdir: str | pathlib.Path, *, needs_backbone: bool = True) -> Run:
    """The run in this folder; nothing there is changed.

    Raises:
        UserError: the folder holds no run, or one without a backbone that is needed.
    """
    workdir = pathlib.Path(workdir).absolute()
    if not (workdir / "config.json").exists():
        raise UserError(f"{workdir} holds no run: it has no config.json")
    config = ConfigDict(read_config(workdir))
    backbone = None
    if config.model or needs_backbone:
        execution = config.get("execution")
        backbone = call_section("model", modules.build, config.model, execution=execution)
    return Run(workdir, config, registry.load(workdir / "tokenizer"), backbone)


def backbone_params(run: Run, layout: Layout) -> Any:
    """The parameters of the run's backbone alone, see `Run.weights`, laid out over a machine."""
    return backbone_weights(run, layout)[0]


def backbone_weights(run: Run, layout: Layout) -> tuple[Any, int]:
    """`backbone_params`, and the step they are of."""
    shapes = jax.eval_shape(lambda: drawn(run.backbone))
    found, step = run.weights(layout.like({"backbone": shapes}), "backbone/")
    return found["backbone"], step


def drawn(backbone: nn.Module) -> Any:
    """A backbone's parameters before it has learned anything."""
    tokens = backbone.example()  # type: ignore[attr-defined]
    mask = text_mask(backbone)
    return backbone.init(jax.random.key(0), tokens, mask=mask, train=False)["params"]


def head_params(run: Run, layout: Layout) -> Any:
    """The parameters of the run's language-model head, laid out so; {}: it has none."""
    if not (shapes := shapes_of_head(run.head)):
        return {}
    return run.weights(layout.like({"head": shapes}), "head/")[0]["head"]


def shapes_of_head(head: language_model.LanguageModelHead) -> Any:
    """The shapes of a head's parameters; {}: it has none."""
    return jax.eval_shape(head.init, jax.random.key(0)).get("params", {})
