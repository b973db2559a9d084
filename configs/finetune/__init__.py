"""Holds recipes of fine-tuning jobs, one task each."""
