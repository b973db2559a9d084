"""Heads of tasks on the states: structured outputs and their losses."""
