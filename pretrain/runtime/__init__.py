"""What every command needs of the machine: files, locks, errors, progress."""
