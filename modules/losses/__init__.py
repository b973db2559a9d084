"""Losses over a large vocabulary, computed in pieces."""
