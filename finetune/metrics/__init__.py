"""The official metric of each kind of task."""
