"""The hooks of a recipe are refused at the door where they cannot be, or clash."""

import types

import pytest

from pretrain.runtime.errors import UserError
from pretrain.training.recipe_hooks import build_hooks, check_hooks

PLATEAU = {"name": "tests.support.own_parts.plateau", "loss": "dev/loss"}


def test_fields_of_a_section_are_those_of_the_hook():
    (hook,) = build_hooks({"plateau": PLATEAU | {"factor": 0.1}})
    assert (hook.loss, hook.factor, hook.name) == ("dev/loss", 0.1, "plateau")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "none.such"}, r"hooks.a.name='none\.such': there is no none\.such with a Hook"),
        ({}, "hooks.a.name='': there is no"),
        (PLATEAU | {"los": 1}, "hooks.a: got an unexpected keyword argument 'los'"),
    ],
)
def test_a_section_that_makes_no_hook_is_named(fields, message):
    with pytest.raises(UserError, match=f"^{message}"):
        build_hooks({"a": fields})


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ([{"name": "a"}, {"name": "a"}], "two are called 'a'"),
        ([{"name": "saving"}], "two are called 'saving'"),
        ([{}], "one has no name"),
        (
            [{"name": "a", "scalars": {"lr_scale": 1}}, {"name": "b", "scalars": {"lr_scale": 1}}],
            "two change the scalar 'lr_scale'",
        ),
    ],
)
def test_hooks_that_clash_are_refused(own, message):
    with pytest.raises(UserError, match=f"^hooks: {message}"):
        check_hooks([types.SimpleNamespace(**{"scalars": {}} | fields) for fields in own])
