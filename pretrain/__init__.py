"""The training machine, and what it can learn without labels."""
