"""The version of the names in config.json and in the record of a checkpoint."""

import os
from typing import Any

from pretrain.runtime.errors import UserError
from pretrain.runtime.files import PathLike

FORMAT = 3  # raised when names in either change


def check_format(record: dict[str, Any], where: PathLike) -> None:
    """Takes the format number out of a record, and compares it with `FORMAT`.

    Raises:
        UserError: the record was written by another version, which named things otherwise.
    """
    number = record.pop("format", 1)  # the first layout had no number
    if number != FORMAT:
        raise UserError(
            f"{os.fspath(where)} has format {number}, and this version reads format {FORMAT}: "
            "parameters, text formats and sections of the recipe have other names; train the run "
            "again, or import its release again"
        )
