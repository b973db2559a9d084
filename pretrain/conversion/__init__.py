"""Moves published weights into runs, and runs into published formats."""
