"""Processes, meshes and shardings, and what watches over them."""
