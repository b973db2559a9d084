"""Removes credentials from addresses, so that these can be printed and saved."""

import contextlib
import re
from collections.abc import Iterator

# The user part of an address ends at the last @ before the path; a secret that holds a slash
# needs a colon before it that begins no port.
USER = re.compile(r"(?<=://)(?:[^/\s]*@|[^/:@\s]*:(?!\d*/)[^@\s]*@)")
SIGNED = re.compile(
    r"(?<=[?&])(?:sig|signature|(?:\w*_)?token|key|api_?key|secret|password"
    r"|AWSAccessKeyId|GoogleAccessId|X-(?:Amz|Goog)-[\w-]+)=[^&\s]*&?",
    re.IGNORECASE,
)


def remove_credentials(address: str) -> str:
    """Removes user, password and signature from every address in a text; the rest stays.

    "text:s3://key:secret@bucket/a/*.txt" becomes "text:s3://bucket/a/*.txt".  A text
    without an address is returned unchanged.
    """
    if "://" not in address:
        return address
    return re.sub(r"[?&](?=\s|$)", "", SIGNED.sub("", USER.sub("", address)))


@contextlib.contextmanager
def hide_credentials() -> Iterator[None]:
    """Removes credentials from the message of an error that leaves the block or the function."""
    try:
        yield
    except Exception as error:
        args = (remove_credentials(x) if isinstance(x, str) else x for x in error.args)
        error.args = tuple(args)
        raise
