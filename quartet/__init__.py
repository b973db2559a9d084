"""The command `quartet` of an installed package."""
