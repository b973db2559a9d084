"""Documents become flat arrays of tokens and boundaries on disk."""
