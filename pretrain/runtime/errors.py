"""The one kind of error that is the user's to mend: mains print it as a line, not a traceback."""

TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h, as of `launch.attempt`: nothing is wrong with the run


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


class TerminatedError(UserError):
    """The process was asked to stop before there was a result; the same command begins again."""

    code = TRY_AGAIN
