"""The one kind of error that is the user's to mend: mains print it as a line, not a traceback."""


class UserError(Exception):
    """Something the person at the keyboard can put right; the message says what and where.

    Commands print it without the credentials of the addresses in it.

    Attributes:
        code: what the process ends with.
    """

    code = 1


class UsageError(UserError):
    """A command line that cannot be read as it stands."""

    code = 2
