"""Compiles a recipe's step for machines that are not here, and reads the compiled program."""
