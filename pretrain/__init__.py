"""The training machine, and what it can learn without labels."""

from pretrain.streams import open_closed

open_closed()  # before anything is opened that stays open
