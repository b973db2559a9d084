"""Measures: speed beside peers, the data layer, embeddings."""
