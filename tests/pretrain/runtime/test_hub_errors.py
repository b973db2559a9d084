"""What the Hub and the network to it refuse is a line."""

import pytest
from huggingface_hub import errors

from pretrain.data.corpus import sources
from pretrain.runtime.errors import UserError
from pretrain.runtime.hub_errors import explain_errors


class SilenceError(errors.HTTPError):
    pass


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (SilenceError("[Errno -2] Name not known"), "cannot reach the Hub (Name not known)"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
    ids=["silence", "disk"],
)
def test_errors_of_the_hub_are_a_line(error, line):
    with pytest.raises(UserError) as said, explain_errors("hub:a/b"):
        raise error
    assert str(said.value) == f"hub:a/b: {line}"


def test_a_dataset_of_a_hub_out_of_reach_is_a_line(monkeypatch):
    def find_records(*_given, **_options):
        raise SilenceError("Name not known")

    monkeypatch.setattr(sources, "find_records", find_records)
    with pytest.raises(UserError, match=r"^hf:a/b: cannot reach the Hub \(Name not known\)$"):
        sources.find_hub_dataset("a/b", text_key="text")
