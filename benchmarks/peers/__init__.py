"""The same training steps written with PyTorch, to compare with."""
