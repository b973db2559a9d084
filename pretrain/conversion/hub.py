"""Fetches published weights from the Hugging Face Hub, and puts exported ones there.

HF_TOKEN, HF_HOME and HF_ENDPOINT hold as in `huggingface_hub`, whose cache keeps what was fetched.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pretrain.runtime.errors import UserError

PREFIX = "hub:"  # of a source that is no folder
# Never read here: pickles, which can run code, and forms of other libraries.
IGNORED = [
    *("*.bin", "*.pt", "*.pth", "*.ckpt", "*.msgpack", "*.ot", "*.h5", "*.onnx", "*.tflite"),
    *("onnx/*", "openvino/*", "coreml/*"),
]


def download(name: str) -> tuple[Path, str]:
    """Downloads a repository of weights, or finds it in the cache.

    Args:
        name: "org/name", perhaps with "@" and a branch, a tag or a commit behind it.

    Returns:
        (its folder, "org/name@commit").

    Raises:
        UserError: there is none, it is not accessible, or the Hub cannot be reached.
    """
    from huggingface_hub import snapshot_download  # slow, and few need it

    repository, _, revision = name.partition("@")
    with explain_errors(f"{PREFIX}{name}"):
        folder = snapshot_download(
            repository,
            revision=revision or None,
            ignore_patterns=IGNORED,
            endpoint=os.environ.get("HF_ENDPOINT"),
        )
    return Path(folder), f"{repository}@{Path(folder).name}"


def push(folder: Path, name: str, private: bool = False) -> str:
    """Puts the files of a folder into a repository of the Hub, which is made if there is none.

    Returns:
        Its address.

    Raises:
        UserError: the Hub refuses it or cannot be reached; the folder stays as it is.
    """
    from huggingface_hub import HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    with explain_errors(f"--push={name}"):
        address = api.create_repo(name, exist_ok=True, private=private)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Export from Quartet")
    return str(address)


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
