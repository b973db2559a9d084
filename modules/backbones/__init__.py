"""Networks that turn tokens into states, one architecture a file, all called alike.

Who sees whom is a value that the caller makes (`modules.masks.Mask`).  So every objective runs on
every backbone that can honour its mask; one that cannot says why (`Backbone.refusal`).
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import jax

from modules.masks import Mask


class Output(NamedTuple):
    """Result of a backbone.

    Attributes:
        h: states, [B, L, D] or [B, P, D] of the slots; of `layer_states` [N + 1, B, L, D].
        memory: what the next call goes on from; None where there is nothing.
    """

    h: Any
    memory: Any = None


Edit = Callable[[jax.Array], jax.Array]  # [B, L, D] of the tokens' vectors -> the same shape


class Backbone(Protocol):
    """A Linen module that turns tokens into states.

    Attributes:
        FREE_FIELDS: fields that may differ from those that the weights were trained with, as no
            shape of a weight depends on them: how parameters begin, dropout, the dtype to compute
            in; `attention` of a transformer; `M` and `reuse_len` of XLNet.
        V, D, N: vocabulary, width, layers.
        dtype: that it computes in.
        is_causal: read from left to right, also where no objective says so (`text_mask`).
        is_recurrent: True of one whose memory is a state, whatever it has read; may be missing.
    """

    FREE_FIELDS: ClassVar[frozenset[str]]

    V: int
    D: int
    N: int
    dtype: str

    @property
    def is_causal(self) -> bool: ...

    def __call__(
        self,
        tokens: Any,
        *,
        mask: Mask,
        segments_BL: Any = None,
        positions_BL: Any = None,
        slots_BP: Any = None,
        memory: Any = None,
        edit: Edit | None = None,
        train: bool,
    ) -> Output:
        """Computes states.

        Args:
            tokens: ids [B, L], or characters of words [B, L, W].  What the first layer reads of
                them passes through `params.mark_inputs`: gradients by it are taken there.
            mask: who sees whom.
            segments_BL: which of a row's texts a token is of; None: all of one.
            positions_BL: where tokens stand, in place of 0, 1, 2 ...
            slots_BP: the positions whose states are wanted; None: all.
            memory: of an earlier call, or `initial_memory`.
            edit: changes what the first layer reads, after the norm and the dropout that the
                embedding has: augmentations and adversarial noise stand there; None: nothing.
            train: dropout is on.

        Raises:
            ValueError: names in a line what this backbone does not take.
        """
        ...

    def refusal(self, mask: Mask) -> str:
        """Says in a line why a mask cannot be honoured; "" if it can."""
        ...

    def initial_memory(self, B: int) -> Any:
        """Returns the memory before anything is read; None: this backbone has none."""
        ...

    def layer_states(
        self, tokens: Any, *, mask: Mask, segments_BL: Any = None, memory: Any = None
    ) -> Output:
        """Computes what every layer makes of the rows, without dropout: [N + 1, B, L, D].

        The first is what the first layer reads; the last is what a call gives.
        """
        ...

    def table(self) -> Any:
        """Returns the tokens' embedding, [V, D] float32, which a head may be tied to.

        None: there is none, as of a backbone that reads characters.
        """
        ...

    def flops(self, B: int, L: int, P: int) -> float:
        """Counts floating-point operations of a training step on [B, L] with P states read each.

        Products only, a multiply-add as two, backward as twice forward; nothing that a step
        executes beyond that, such as recomputation and scores of what is not seen.  Heads count
        their own.
        """
        ...

    def example(self) -> Any:
        """Returns the smallest tokens, to make the parameters with."""
        ...


def text_mask(backbone: Any, **fields: Any) -> Mask:
    """Makes the mask of whole texts, read in the direction that this backbone has learned.

    Args:
        fields: of `Mask`: `valid_BL` of rows padded anywhere, or `lengths_B`.
    """
    same_length = getattr(backbone, "same_length", False)
    return Mask(is_causal=backbone.is_causal, same_length=same_length, **fields)


def has_unequal_layers(backbone: Any) -> bool:
    """Returns whether layers are not as wide as words, so that `layer_states` has no one shape."""
    return any(width != backbone.D for width in getattr(backbone, "layer_widths", ()))


def init_params(backbone: Any) -> Any:
    """Initializes a backbone's parameters by itself, as where only their shapes are wanted."""
    mask = text_mask(backbone)
    return backbone.init(jax.random.key(0), backbone.example(), mask=mask, train=False)["params"]


def refuse_arguments(who: str, **arguments: Any) -> None:
    """Raises a ValueError that names the first argument that is given though it means nothing."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{who} has no use for {name}: leave it out")
