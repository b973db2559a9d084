"""What a task puts on the states: structured outputs and their losses."""
