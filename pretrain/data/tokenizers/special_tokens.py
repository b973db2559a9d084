"""Checks for the special tokens that a layout or an objective reads."""

from collections.abc import Iterable, Mapping

from pretrain.runtime.errors import UserError


def require_special(special: Mapping[str, int], names: Iterable[str], reader: str) -> None:
    """Checks that a vocabulary has the special tokens that something reads.

    Args:
        special: of the tokenizer.
        names: of SPECIAL_NAMES.
        reader: what needs them, as "pairs".

    Raises:
        UserError: it lacks some.
    """
    if missing := [f"<{name}>" for name in names if name not in special]:
        known = ", ".join(f"<{name}>" for name in special) or "none"
        raise UserError(
            f"{reader} needs {' and '.join(missing)}, but this vocabulary's special tokens are "
            f"{known}: choose another corpus.tokens.name, or another init"
        )
