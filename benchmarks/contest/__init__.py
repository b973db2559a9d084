"""Times several programs in turns, each in a process of its own, and tabulates the ratios."""
