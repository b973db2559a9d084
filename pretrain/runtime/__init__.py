"""Gives every command what it needs of the machine: files, locks, errors, progress."""
