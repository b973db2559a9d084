"""Recurrent networks that several tasks share (Liu, Qiu & Huang 2016, arXiv 1605.05101).

Its three models: one LSTM that reads vectors of the task's own beside the shared ones; an LSTM for
each task, coupled with the others'; an LSTM for each that reads a shared biLSTM's states.
"""

from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn

from modules import plugins
from modules.activation_sharding import constrain_sharding
from modules.backbones import Output, refuse_arguments
from modules.backbones.word_network import WordNetwork
from modules.layers import params, task_lstms
from modules.layers.peephole_bilstm import PeepholeBiLSTM
from modules.layers.recurrent_masks import group_starts, separate_starts
from modules.layers.rnn import State
from modules.masks import Mask

READERS: dict[str, type[task_lstms.TaskLSTMs]] = {
    "uniform": task_lstms.Uniform,
    "coupled": task_lstms.Coupled,
    "shared": task_lstms.Shared,
}


class Backbone(WordNetwork):
    """Words to the states of the task's LSTM; without tasks, of the biLSTM that they would share.

    The shared biLSTM learns to predict words, too: `objective.name='bilm'` on model III.

    Attributes:
        V, D, dropout, init_scale: see `WordNetwork`; all weights are drawn as the vectors are.
        U: units of an LSTM.
        sharing: "uniform", I: one LSTM; "coupled", II: one for each task, whose candidates are
            mixed of all their states; "shared", III: one for each above a biLSTM of all.
        tasks: their names; (): none yet, of model III alone.
        own_D: width of the vectors of a task's own in model I; 0: there are none.
        unroll: positions per step of the scan over positions.
    """

    KIND: ClassVar[str] = "a TextRNN"
    N: ClassVar[int] = 1
    Z: ClassVar[int] = 2  # directions of model III, which a language model reads apart
    inputs: ClassVar[str] = "words"
    FREE_FIELDS: ClassVar[frozenset[str]] = WordNetwork.FREE_FIELDS | {"tasks"}

    D: int = 64
    U: int = 50
    sharing: str = "uniform"
    tasks: tuple[str, ...] = ("",)
    own_D: int = 0
    unroll: int = 1

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "sharing", READERS)
        if not self.tasks and self.sharing != "shared":
            raise plugins.FieldError("tasks=(): name one, or leave the field out")
        if self.own_D and self.sharing != "uniform":
            raise plugins.FieldError(f"own_D={self.own_D} is of sharing='uniform': set it to 0")

    def setup(self):
        super().setup()
        if self.own_D:
            self._make_own_vectors()
        self.reader = self._reader()
        # Its parameters stand among the backbone's, whichever kind reads.
        nn.share_scope(self, self.reader)

    def _make_own_vectors(self) -> None:
        names = {task: f"own_{task}_VD" for task in self.tasks}
        self.tables = {k: self.make_table(x, decay=True, D=self.own_D) for k, x in names.items()}
        params.set_tasks(self, **{name: task for task, name in names.items()})

    def _reader(self, **place) -> task_lstms.TaskLSTMs:
        return READERS[self.sharing](self.tasks, *self._sizes, **place)

    @property
    def _sizes(self) -> tuple:
        return (self.U, self.init_scale, self.dtype, self.unroll)

    @property
    def is_causal(self) -> bool:
        return self.sharing != "shared"

    @property
    def has_separate_directions(self) -> bool:
        """Returns whether a text can be read in each direction, with no states of the other."""
        return self.sharing == "shared"

    @property
    def width(self) -> int:
        # Without tasks there is the shared biLSTM alone, whose directions stand side by side.
        return self.U if self.tasks else 2 * self.U

    @property
    def layer_widths(self) -> tuple[int, ...]:
        # Vectors of a task's own make the input wider than D.
        return (self.width, self.D + self.own_D)

    def refusal(self, mask: Mask) -> str:
        known = {"is_causal", "lengths_B", "valid_BL"} | (
            {"groups_BL"} if self.is_causal else set()
        )
        if others := set(mask.fields()) - known:
            return f"a TextRNN reads texts from end to end: no {', '.join(sorted(others))}"
        if mask.is_causal != self.is_causal:
            way = "one way: it takes a causal mask" if self.is_causal else "what comes, too"
            return f"a TextRNN with model.sharing={self.sharing!r} reads {way}"
        return ""

    def flops(self, B: int, L: int, P: int) -> float:
        del P  # every state is computed, whether or not it is read
        # A product is 2 operations a weight, and the backward pass has two products for each.
        return 6.0 * B * L * self.U * self._reader(parent=None).products(self.D + self.own_D)

    def __call__(self, tokens, *, mask: Mask, memory: State | None = None, train: bool, **others):
        """Computes states, see `WordNetwork`.

        Model III reads a text for each direction, too: ids [B, 2, L] in the order of reading, under
        a causal mask with groups, which clear the states of the shared biLSTM: [B, 2, L, U].
        """
        if tokens.ndim == 2:
            return super().__call__(tokens, mask=mask, memory=memory, train=train, **others)
        refuse_arguments("a reader of a text for each direction", **others)
        starts_BZL = separate_starts(mask)
        x_BZLD = self.embed(tokens, jnp.ones_like(tokens, bool), train=train)
        return Output(*self.reader.bilstm.read_separately(x_BZLD, starts_BZL, memory))

    def initial_memory(self, B: int) -> State | None:
        """Returns the shared biLSTM's states before the first word; None of other models."""
        if not self.has_separate_directions:
            return None
        return PeepholeBiLSTM(*self._sizes, parent=None).initial_state(B)

    def look_up(self, tokens, network: str = ""):
        """Looks up the words' vectors, in model I a task's own before the shared ones."""
        x = super().look_up(tokens)
        if not self.own_D:
            return x
        task_x = self.tables[self._find_task(network)][tokens].astype(self.dtype)
        return jnp.concatenate([task_x, x], -1)

    def read_layers(self, x_BLD, valid_BL, *, mask: Mask, memory, train: bool, network: str = ""):
        """Computes [the states [B, L, U] of a task's LSTM], and None.

        Args:
            network: the task; "": the first, or without tasks the shared biLSTM.

        Raises:
            ValueError: there is no such task, or a memory is given.
        """
        del train
        if memory is not None:
            raise ValueError("a TextRNN begins anew with each text: leave memory out")
        task, reset_BL = self._find_task(network), group_starts(mask.groups_BL)
        h_BLU = self.reader(x_BLD, valid_BL, reset_BL, task)
        return [constrain_sharding(h_BLU.astype(self.dtype), "BLD")], None

    def _find_task(self, network: str) -> str:
        network = network or next(iter(self.tasks), "")
        if network and network not in self.tasks:
            has = ", ".join(self.tasks) or "no tasks yet"
            raise ValueError(f"network={network!r}: this TextRNN has {has}")
        return network
