"""Encoders: what turns a task's rows into states, one a file, named by `task.encoder.name`.

    backbone     the last layer of the pretrained backbone, or of a network from scratch
    scalar_mix   a weighted average of all layers of the backbone, as ELMo's
    recurrent    an RNN of the task's own, fed with one of the others, or with words alone

A name with a dot is a module of your own.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import jax
from flax import linen as nn

from modules import plugins
from modules.backbones import init_params
from modules.layers.params import recording
from modules.metrics import Metrics

FOLDER = "finetune.encoders"


class Encoder(Protocol):
    """A Linen module from a batch to states; its file calls it `Encoder`.

    The file may also have `PARTS`: classes by the fields whose sections of a recipe they take.

    Its first field is the backbone, which several encoders and tasks may share: one module passed
    to all of them has one set of parameters.  It is None where a job has none; an encoder whose
    class says `needs_backbone = False` can do without.

    Attributes:
        has_backbone_states: the states are the backbone's, so that a head may use its pooler.
    """

    has_backbone_states: bool

    def each(self, batch: Mapping[str, Any], *, train: bool) -> jax.Array:
        """Computes states [K, B, L, D], one for each use of them (field `copies`)."""
        ...

    def __call__(self, batch: Mapping[str, Any], *, train: bool) -> jax.Array:
        """Computes states [B, L, D].

        Args:
            batch: arrays of `RowBuilder`; where there are words, `word_BL` marks one position of
                each, `own_BL` has ids of the task's own words, `own_chars_BLW` their characters.
        """
        ...

    def add_losses(
        self, metrics: Metrics, h_BLD: jax.Array, rows: Mapping[str, Any], *, train: bool
    ) -> Metrics:
        """Adds to the task's metrics the losses that the encoder trains besides.

        Args:
            h_BLD: what the call returned for `rows`.
            rows: the batch; `weight_B` may weigh several rows each.
        """
        ...


def build(backbone: nn.Module | None, name: str = "backbone", **fields: Any) -> nn.Module:
    """Builds an encoder on a backbone; a field that is None has the encoder's own default.

    Raises:
        plugins.FieldError: there is no such file, or the fields do not fit.
    """
    module = plugins.load(FOLDER, name, "Encoder")
    encoder = module.Encoder
    if backbone is None and getattr(encoder, "needs_backbone", True):
        raise plugins.FieldError(
            f"encoder.name={name!r} reads a backbone: name a pretrained run in init, or a network "
            "in model"
        )
    fields = {field: x for field, x in fields.items() if x is not None}
    for field, part in getattr(module, "PARTS", {}).items():
        if isinstance(fields.get(field), Mapping):
            fields[field] = plugins.construct(part, **fields[field])
    if isinstance(fields.get("features"), Mapping) and not fields.get("join", encoder.join):
        del fields["features"]  # joined nowhere
    elif isinstance(fields.get("features"), Mapping):
        # One copy for each place of the stack that is fed: ELMo has weights for each (section 3.3).
        copies = len(fields.get("join", encoder.join))
        fields["features"] = build(backbone, **{"copies": copies, **fields["features"]})
    return plugins.construct(encoder, backbone, **fields)


_weights: dict[str, int] = {}


def count_weights(backbone: nn.Module) -> int:
    """Counts the numbers in a backbone's parameters that are no table's."""
    if (name := repr(backbone)) not in _weights:  # a backbone need not have a hash
        with recording() as record:
            shapes = jax.eval_shape(lambda: init_params(backbone))
        sizes = jax.tree.map(
            lambda x, info: 0 if info.is_table else x.size, shapes, record.infos(shapes)
        )
        _weights[name] = sum(jax.tree.leaves(sizes))
    return _weights[name]


def training_flops(backbone: nn.Module | None, B: int, L: int) -> float:
    """Estimates operations of a training step: six for each token and each of the weights."""
    # Not `backbone.flops`: options of an example share its L, and do not attend to each other.
    if backbone is None:
        return 0.0
    return 6.0 * B * L * count_weights(backbone)
