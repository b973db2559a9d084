"""Runs `python -m quartet COMMAND` as `quartet COMMAND`."""

from quartet.command import main

main()
