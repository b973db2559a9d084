"""Networks that turn tokens into states, one architecture a file."""
