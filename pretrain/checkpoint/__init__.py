"""Saves, verifies and restores the state of a run."""

from pretrain.checkpoint.transfer import load_backbone

__all__ = ["load_backbone"]
