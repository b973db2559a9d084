"""Recipes of evaluations on another text."""
