"""Turns what the Hugging Face Hub and the network to it refuse into a line."""

import contextlib
import re
import sys
from collections.abc import Iterator

from pretrain.runtime.errors import UserError


def _find_reason(error: BaseException) -> str:
    from huggingface_hub import errors

    # The library's own text is of several sentences; the error that began it is of a few words.
    while inner := error.__cause__ or error.__context__:
        error = inner
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    return re.sub(r"^\[Errno -?\d+\] ", "", text)[:100].rstrip(".") or type(error).__name__


@contextlib.contextmanager
def explain_errors(what: str) -> Iterator[None]:
    """Turns errors of the Hub and of the network into a line."""
    from huggingface_hub import errors, utils

    if not sys.stderr.isatty():  # each of its bars would be lines of a log
        utils.disable_progress_bars()
    # The first is of the network, too; of a full disk, or a token that is not there, the second.
    known = (errors.HTTPError, OSError, errors.HFValidationError)
    try:
        yield
    except errors.RepositoryNotFoundError as error:
        text = (
            "the Hub has no such repository, or it is private: HF_TOKEN is to hold a token for it"
        )
        raise UserError(f"{what}: {text}") from error
    except known as error:
        # An answer of the Hub, as a refusal, is another error than the want of one.
        is_answer = isinstance(error, errors.HfHubHTTPError)
        is_silence = isinstance(error, errors.HTTPError) and not is_answer
        if is_silence or isinstance(error, errors.LocalEntryNotFoundError):
            reason = _find_reason(error)
            raise UserError(f"{what}: cannot reach the Hub ({reason})") from error
        text = " ".join(str(error).split())
        raise UserError(f"{what}: {text[:300] or type(error).__name__}") from error
