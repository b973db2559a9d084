"""A value of a command line is refused by its key and by what the key takes."""

import pytest
from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from pretrain.cli.values import check_value
from pretrain.runtime.errors import UsageError

CONFIG = ConfigDict(
    dict(
        optim=dict(lr=7e-4, steps=4000, bias=True, decay="linear", rates=dict(head=0.5)),
        L=placeholder(int),
        dtype=None,
    )
)


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("optim.steps", "1e3", "a whole number, as 1000"),
        ("optim.steps", "2000.0", "a whole number, as 2000"),
        ("optim.steps", "many", "a whole number, as 4000"),
        ("optim.steps", "inf", "a whole number, as 4000"),
        ("L", "x", "a whole number"),
        ("optim.lr", "abc", "a number, as 0.0007"),
        ("optim.bias", "maybe", "true or false"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_the_kind(key, text, said):
    with pytest.raises(UsageError) as error:
        check_value(CONFIG, key, text)
    assert str(error.value) == f"--config.{key}={text}: it is to be {said}"


def test_a_section_is_no_value():
    with pytest.raises(UsageError, match=r"optim\.rates is a section; set .*\.rates\.head=\.\.\."):
        check_value(CONFIG, "optim.rates", "--workdir=x")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *[("optim.steps", "0x10"), ("optim.lr", "1e-3"), ("optim.lr", "nan"), ("L", "8")],
        *[("optim.bias", "False"), ("optim.decay", "1"), ("dtype", "x"), ("optim", "{'lr': 1.0}")],
    ],
)
def test_what_the_flags_take_is_not_refused(key, text):
    check_value(CONFIG, key, text)
