"""Defines how a system frames texts: its marks, segments, padding, and the state of a whole row."""

import dataclasses
from collections.abc import Mapping, Sequence

from modules import plugins
from pretrain.runtime.errors import UserError

FOLDER = "pretrain.inference.text_formats"
SIDES = ("left", "right")


@dataclasses.dataclass(frozen=True)
class TextFormat:
    """The way in which a pretrained system reads one text, or several in a row.

    A row is `before`, each text with `between` behind it, `after` behind the last text, and `last`.
    Marks are names of special tokens of the tokenizer, or of `new_tokens`.

    Attributes:
        before, between, after: marks; those before belong to the first text's segment, the others
            to the segment of the text that they follow.
        last: marks that end the row in a segment of their own, `last_segment`.
        new_tokens: marks that pretraining never showed.  They become rows of the embedding beyond
            the tokenizer's, learned in fine-tuning; a text is embedded without them.
        segments: how many segments the system tells apart; 0: it reads none.
        padding: the side of the row that is filled up, "left" or "right".
        backward: a text is read from its last token to its first, after the marks before it.
        pool: the state that speaks for the row, of `modules.layers.pooling`.
        context_first: a context stands before the question about it.
        separate_choice: a choice is a text of its own, and all before it is one other text; else
            the question and its choice are one text.
        conditional_end: an answer's end is scored given its start, as the system's authors did.
    """

    before: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    last_segment: int = 0
    new_tokens: tuple[str, ...] = ()
    segments: int = 0
    padding: str = "right"
    backward: bool = False
    pool: str = "first"
    context_first: bool = False
    separate_choice: bool = False
    conditional_end: bool = False

    def __post_init__(self):
        if self.padding not in SIDES:
            raise UserError(f"padding={self.padding!r} of a text format: left or right")

    @property
    def marks(self) -> tuple[str, ...]:
        """Every mark that a row can have."""
        return tuple(dict.fromkeys((*self.before, *self.between, *self.after, *self.last)))

    def frame(self, special: Mapping[str, int]) -> tuple[list[int], list[int], list[int]]:
        """Lists the marks around one text, as pretraining showed it.

        Returns:
            (ids before the text, ids behind it, segments of those behind it)

        Raises:
            UserError: the tokenizer lacks a mark.
        """
        before, after, last = (
            [name for name in names if name not in self.new_tokens]
            for names in (self.before, self.after, self.last)
        )
        segments = [0] * len(after) + [self.last_segment] * len(last)
        return mark_ids(before, special), mark_ids(after + last, special), segments

    def require_forward(self, what: str) -> None:
        """Raises a UserError if texts are read from their end, where `what` needs their order."""
        if self.backward:
            raise UserError(f"{what} need a text_format that reads from left to right")


def mark_ids(names: Sequence[str], special: Mapping[str, int]) -> list[int]:
    """Looks up ids of marks; UserError if the tokenizer lacks one."""
    if lacking := [name for name in names if name not in special]:
        raise UserError(
            f"this text format needs a token <{lacking[0]}>, but the tokenizer has only "
            f"{', '.join(special) or 'none'}: take another text_format or tokens.name"
        )
    return [special[name] for name in names]


def load_format(name: str) -> TextFormat:
    """Returns the format of this name: a file of the folder, or a module of your own with a dot.

    Raises:
        UserError: there is no such file, or it holds no format.
    """
    if not name:
        known = ", ".join(plugins.names(FOLDER, "FORMAT"))
        raise UserError(f"text_format: name how this model frames texts: {known}")
    try:
        text_format = plugins.load(FOLDER, name, "FORMAT").FORMAT
    except plugins.UnknownNameError as error:
        raise UserError(f"text_format: {error}") from error
    if not isinstance(text_format, TextFormat):
        raise UserError(f"text_format={name!r}: its FORMAT is no TextFormat")
    return text_format


def reads_as_trained(name: str, batches: Mapping) -> bool:
    """Checks that a format reads in the direction that a language model is trained in.

    Args:
        name: of the format.
        batches: section of the model's recipe.

    Raises:
        UserError: there is no such format.
    """
    # Only language models of one direction say it; all others read both ways, or do not mind.
    return batches.get("backward") in (None, load_format(name).backward)


def check_direction(name: str, batches: Mapping, model: str) -> None:
    """Raises a UserError, which calls the model so, if `reads_as_trained` does not hold."""
    if not reads_as_trained(name, batches):
        raise UserError(
            f"text_format={name!r}: {model} is trained with batches.backward={batches['backward']}:"
            " take 'ulmfit' for a model that reads forwards, 'ulmfit_backward' for one that reads "
            "backwards"
        )


def format_name(config: Mapping) -> str:
    """Returns the name of the format that a run's recipe holds.

    Raises:
        UserError: the recipe is of before formats had names.
    """
    if not config.get("text_format"):
        known = ", ".join(plugins.names(FOLDER, "FORMAT"))
        raise UserError(
            f"this run's config.json has no text_format: write how the model frames texts, {known}"
        )
    return config["text_format"]
