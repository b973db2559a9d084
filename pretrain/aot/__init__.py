"""Compiles training steps ahead of time, for TPUs that are not here, and estimates their speed."""
