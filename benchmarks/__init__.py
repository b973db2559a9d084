"""Measures speed beside peers, the data layer, embeddings and sentence vectors."""
