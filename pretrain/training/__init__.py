"""The training loop, its state, its optimiser and its hooks."""
