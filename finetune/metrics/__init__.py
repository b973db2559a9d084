"""Scores predictions against references as the official script of each benchmark does."""
