"""Pure Flax: arrays in, arrays out.  No batches, no files, no clocks, no devices.

One alphabet names every dimension: in suffixes (`x_BLD`), einsums ("BLD,DHK->BLHK"),
module fields (`D`), configs (`config.model.D`), parameter names (`wq_DHK`) and the
sharding table (`D -> "fsdp"`).  Scanned layers stack their parameters on a leading
dimension that the name leaves out.

    B batch          L positions of a sequence      P predicted positions of a sequence
    T positions of a sequence where the devices of the mesh's axis `tensor` share them
    M memory         J what is attended to: memory, then the sequence
    R distances      S same segment or another (2); scenes
    D width          H heads          K width of one head       F feed-forward
    V vocabulary     N layers         C classes        O options, orders, examples of a row
    Z directions (0 forwards, 1 backwards)              G gates of a recurrent cell
    U units of a cell                 W characters of a word
    E width of a character, or of what is projected to D
    X filters of the character CNN
"""

from collections.abc import Mapping
from typing import Any

from modules import plugins


def build(name: str, *, execution: Mapping[str, Any] | None = None, **fields: Any):
    """Builds a backbone: `build("two_stream", D=768)` is `two_stream.Backbone(D=768)`.

    Args:
        name: of a file in modules/backbones, or a dotted name.
        execution: how a step is computed, as dict(remat="full"); what the backbone has no field
            for is meant for other modules.
        fields: what is computed.

    Raises:
        plugins.FieldError: no file of modules/backbones has this name, or the fields do not fit.
    """
    backbone = load_backbone(name)
    fields |= plugins.select_fields(backbone, execution or {})
    return plugins.construct(backbone, **fields)


def load_backbone(name: str) -> Any:
    """Loads the class of a backbone, see `build`."""
    return plugins.load("modules.backbones", name, "Backbone").Backbone
