"""Addresses as they may be written down: without the names and secrets they are opened with."""

import re

# The user part of an address ends at the last @ before the path; a secret that holds a slash
# needs a colon before it that begins no port.
USER = re.compile(r"(?<=://)(?:[^/\s]*@|[^/:@\s]*:(?!\d*/)[^@\s]*@)")
SIGNED = re.compile(
    r"(?<=[?&])(?:sig|signature|(?:\w*_)?token|key|api_?key|secret|password"
    r"|AWSAccessKeyId|GoogleAccessId|X-(?:Amz|Goog)-[\w-]+)=[^&\s]*&?",
    re.IGNORECASE,
)


def without_credentials(address: str) -> str:
    """Removes user, password and signature from every address in a text; the rest stays.

    "text:s3://key:secret@bucket/a/*.txt" becomes "text:s3://bucket/a/*.txt".  What holds no
    address comes back as it is.
    """
    if "://" not in address:
        return address
    return re.sub(r"[?&](?=\s|$)", "", SIGNED.sub("", USER.sub("", address)))
