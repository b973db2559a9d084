"""Predicts with a fine-tuned run, and writes what benchmarks ask for."""
