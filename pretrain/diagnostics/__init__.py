"""Diagnoses what becomes of gradients on their way back through time and through layers."""
