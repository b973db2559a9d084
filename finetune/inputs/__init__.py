"""Turns examples into rows of tokens, and rows into batches."""
