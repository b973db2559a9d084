"""Saves, verifies and restores the state of a run."""
