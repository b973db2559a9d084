"""Parts written outside the repository: one of each kind that a recipe can name."""
