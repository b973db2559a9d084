"""Recipes: the values of a run, one page each."""
