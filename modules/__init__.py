"""Pure Flax: arrays in, arrays out.  No batches, no files, no clocks, no devices.

One alphabet names every dimension: in suffixes (`x_BLD`), einsums ("BLD,DHK->BLHK"),
module fields (`D`), configs (`config.model.D`), parameter names (`wq_DHK`) and the
sharding table (`D -> "fsdp"`).  Scanned layers stack their parameters on a leading
dimension that the name leaves out.

    B batch          L positions of a sequence      P predicted positions of a sequence
    M memory         J what is attended to: memory, then the sequence
    R distances      S same segment or another (2)
    D width          H heads          K width of one head       F feed-forward
    V vocabulary     N layers         C classes        O options or orders of a row
    Z directions (0 forwards, 1 backwards)              G gates of a recurrent cell
    U units of a cell                 W characters of a word
    E width of a character            X filters of the character CNN
"""

import importlib
from typing import Any


def build(name: str, **fields: Any):
    """`build("two_stream", D=768, ...)` is `modules.backbones.two_stream.Backbone(D=768, ...)`."""
    return importlib.import_module(f"modules.backbones.{name}").Backbone(**fields)
