"""Fetches published weights from the Hugging Face Hub, and puts exported ones there.

HF_TOKEN, HF_HOME and HF_ENDPOINT hold as in `huggingface_hub`, whose cache keeps what was fetched.
"""

import os
from pathlib import Path

from pretrain.runtime.hub_errors import explain_errors

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
