"""The encoder a task reads with: a restored backbone, or a network from scratch."""
