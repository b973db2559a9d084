"""Several tasks in one run, each with examples and a head of its own, on one encoder."""
