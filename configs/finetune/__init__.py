"""Recipes of fine-tuning jobs, one task each."""
