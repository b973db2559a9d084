"""Holds recipes: the values of a run, one page each."""
