"""The one kind of error that is the user's to mend: mains print it as a line, not a traceback."""


class UserError(ValueError):
    """Something the person at the keyboard can put right; the message says what and where."""
