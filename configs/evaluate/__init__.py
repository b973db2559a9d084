"""Holds recipes of evaluations on another text."""
