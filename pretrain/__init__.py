"""The training machine, and what it can learn without labels."""

from pretrain.runtime.standard_streams import open_closed

open_closed()  # before anything is opened that stays open
