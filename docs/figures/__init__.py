"""Draws the pictures of the documentation, each beside the pages:  python -m docs.figures.masks"""
