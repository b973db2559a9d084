"""A message of a command line names arguments to a caller from Python."""

import pytest

from pretrain.runtime.errors import UsageError, UserError
from quartet.wording import explain_to_callers, name_arguments


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("--pool=x: it is one of mean", "pool=x: it is one of mean"),
        (
            "--layers=mean has its weights: leave out --mix",
            "layers=mean has its weights: leave out mix",
        ),
        ("--config.optim.nope: no key", "optim.nope: no key"),
        ("no recipe; as --config=bert:mini", "no recipe; as bert:mini"),
        (
            "take another --workdir, or --accept_changes:",
            "take another workdir, or accept_changes=True:",
        ),
        ("take its beginning with --cut", "take its beginning with cut=True"),
        ("a -- b, my--file.txt, ---: stay", "a -- b, my--file.txt, ---: stay"),
    ],
)
def test_flags_become_arguments_and_nothing_else_changes(message, words):
    assert name_arguments(message) == words


def test_an_error_keeps_its_kind_and_others_their_text():
    @explain_to_callers()
    def fail(error):
        raise error

    with pytest.raises(UsageError, match=r"^pool=x$") as caught:
        fail(UsageError("--pool=x"))
    assert caught.value.code == UsageError.code
    with pytest.raises(UserError, match=r"^plain$"):
        fail(UserError("plain"))
    with pytest.raises(ValueError, match=r"^--pool$"):
        fail(ValueError("--pool"))
