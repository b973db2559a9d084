"""The one kind of error that is the user's to mend: mains print it as a line, not a traceback."""

import contextlib
import re
from collections.abc import Iterator

from pretrain.runtime.addresses import without_credentials


class UserError(ValueError):
    """Something the person at the keyboard can put right; the message says what and where.

    The message is kept without the credentials of the addresses in it.

    Attributes:
        code: what the process ends with.
    """

    code = 1

    def __init__(self, message: str):
        super().__init__(without_credentials(message))


class UsageError(UserError):
    """A command line that cannot be read as it stands."""

    code = 2


@contextlib.contextmanager
def section(name: str) -> Iterator[None]:
    """Around the use of a recipe's section: a wrong key, name or value in it is the user's.

    Raises:
        UserError: names the section, beside what was wrong.
    """
    try:
        yield
    except UserError:
        raise
    except TypeError as error:
        if not re.search(r"keyword argument|__init__\(\) missing", str(error)):
            raise
        raise UserError(f"{name}: {error}") from error
    except ValueError as error:
        raise UserError(f"{name}.{error}") from error
