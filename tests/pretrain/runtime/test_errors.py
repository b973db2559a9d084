"""A user's error is a kind of its own."""

from pretrain.runtime.errors import UserError


def test_a_user_s_error_is_no_value_error():
    assert not issubclass(UserError, ValueError)
