"""Recurrent networks that several tasks share (Liu, Qiu & Huang 2016, arXiv 1605.05101).

Its three models: one LSTM that reads vectors of the task's own beside the shared ones; an LSTM for
each task, coupled with the others'; an LSTM for each that reads a shared biLSTM's states.
"""

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp

from modules import plugins
from modules.activation_sharding import constrain_sharding
from modules.backbones.word_network import WordNetwork
from modules.layers import params
from modules.layers.peephole_lstm import PeepholeLSTM, scan_lstms
from modules.layers.rnn import to_reading_order, to_text_order
from modules.masks import Mask


class Backbone(WordNetwork):
    """Words to the states of the task's LSTM.

    Attributes:
        V, D, dropout, init_scale: see `WordNetwork`; all weights are drawn as the vectors are.
        U: units of an LSTM.
        sharing: "uniform", I: one LSTM; "coupled", II: one for each task, whose candidates are
            mixed of all their states; "shared", III: one for each above a biLSTM of all.
        tasks: their names.
        own_D: width of the vectors of a task's own in model I; 0: there are none.
        unroll: positions per step of the scan over positions.
    """

    KIND: ClassVar[str] = "a TextRNN"
    N: ClassVar[int] = 1
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
        if not self.tasks:
            raise plugins.FieldError("tasks=(): name one, or leave the field out")
        if self.own_D and self.sharing != "uniform":
            raise plugins.FieldError(f"own_D={self.own_D} is of sharing='uniform': set it to 0")

    def setup(self):
        super().setup()
        # All tasks' parameters at once, whichever task is read first.
        if self.own_D:
            self._make_own_vectors()
        if self.sharing == "uniform":
            self.rnn = self._make_lstm(4, 4)
        elif self.sharing == "coupled":
            self.rnns = {task: self._make_lstm(5, 4 + len(self.tasks)) for task in self.tasks}
        else:
            self._make_shared()

    def _make_own_vectors(self) -> None:
        names = {task: f"own_{task}_VD" for task in self.tasks}
        self.tables = {k: self.make_table(x, decay=True, D=self.own_D) for k, x in names.items()}
        params.set_tasks(self, **{name: task for task, name in names.items()})

    def _make_shared(self) -> None:
        self.shared = [self._make_lstm(4, 4) for _ in range(2)]
        # A sixth product of the word is in the gate of the shared states.
        self.rnns = {task: self._make_lstm(6, 5) for task in self.tasks}
        init, shape = params.initializer("uniform", self.init_scale), (2 * self.U, 2, self.U)
        names = {task: f"joint_{task}_DGU" for task in self.tasks}
        self.joints = {
            task: params.param(self, name, init, shape, decay=True, depth=2)
            for task, name in names.items()
        }
        rnns = {task: f"rnns_{task}" for task in self.tasks}
        params.set_tasks(self, **{x: task for by in (rnns, names) for task, x in by.items()})
        params.set_depths(self, shared_0=1, shared_1=1, **dict.fromkeys(rnns.values(), 2))

    def _make_lstm(self, inputs: int, states: int) -> PeepholeLSTM:
        return PeepholeLSTM(self.U, inputs, states, self.init_scale, self.dtype)

    @property
    def is_causal(self) -> bool:
        return self.sharing != "shared"

    @property
    def width(self) -> int:
        return self.U

    @property
    def layer_widths(self) -> tuple[int, ...]:
        # Vectors of a task's own make the input wider than D.
        return (self.U, self.D + self.own_D)

    def refusal(self, mask: Mask) -> str:
        if others := set(mask.fields()) - {"is_causal", "lengths_B", "valid_BL"}:
            return f"a TextRNN reads texts from end to end: no {', '.join(sorted(others))}"
        if mask.is_causal != self.is_causal:
            way = "one way: it takes a causal mask" if self.is_causal else "what comes, too"
            return f"a TextRNN with model.sharing={self.sharing!r} reads {way}"
        return ""

    def flops(self, B: int, L: int, P: int) -> float:
        del P  # every state is computed, whether or not it is read
        T, U, D = len(self.tasks), self.U, self.D + self.own_D
        products = {
            "uniform": 4 * (D + U),
            "coupled": T * (5 * D + (4 + T) * U),
            "shared": 8 * (D + U) + 6 * D + 5 * U + 4 * U,
        }
        return 6.0 * B * L * U * products[self.sharing]

    def look_up(self, tokens_BL, network: str = ""):
        """Looks up the words' vectors, in model I a task's own before the shared ones."""
        x_BLD = super().look_up(tokens_BL)
        if not self.own_D:
            return x_BLD
        own_BLD = self.tables[self._find_task(network)][tokens_BL].astype(self.dtype)
        return jnp.concatenate([own_BLD, x_BLD], -1)

    def read_layers(self, x_BLD, valid_BL, *, mask: Mask, memory, train: bool, network: str = ""):
        """Computes [the states [B, L, U] of a task's LSTM], and None.

        Args:
            network: the task; "": the first.

        Raises:
            ValueError: there is no such task, or a memory is given.
        """
        del mask, train
        if memory is not None:
            raise ValueError("a TextRNN begins anew with each text: leave memory out")
        h_BLU = READERS[self.sharing](self, x_BLD, valid_BL, self._find_task(network))
        return [constrain_sharding(h_BLU.astype(self.dtype), "BLD")], None

    def _find_task(self, network: str) -> str:
        network = network or self.tasks[0]
        if network not in self.tasks:
            raise ValueError(f"network={network!r}: this TextRNN has {', '.join(self.tasks)}")
        return network

    def _read_coupled(self, x_BLD, valid_BL, task: str):
        # Every task's LSTM reads the text, as each goes into the others' candidates.
        lstms = [self.rnns[name](x_BLD) for name in self.tasks]
        valid_ZBL = jnp.broadcast_to(valid_BL, (len(lstms), *valid_BL.shape))
        return scan_lstms(lstms, valid_ZBL, self.unroll)[self.tasks.index(task)]

    def _read_shared(self, x_BLD, valid_BL, task: str):
        if self.is_initializing():  # all of them, whichever is read first
            jax.tree.map(lambda lstm: lstm(x_BLD), dict(self.rnns))
        s_BLD = self.read_shared(x_BLD, valid_BL)
        gates, joint_DGU = self.rnns[task](x_BLD), self.joints[task].astype(self.dtype)
        a_BLGU = gates.a_BLGU
        # What the shared states say waits for no state: one product for all positions.
        r_BLGU = jnp.einsum("BLD,DGU->BLGU", s_BLD, joint_DGU, preferred_element_type=a_BLGU.dtype)
        share_BLU = jax.nn.sigmoid(a_BLGU[:, :, 5] + r_BLGU[:, :, 1]) * r_BLGU[:, :, 0]
        a_BLGU = a_BLGU.at[:, :, 3].add(share_BLU)[:, :, :5]
        return scan_lstms([gates._replace(a_BLGU=a_BLGU)], valid_BL[None], self.unroll)[0]

    def read_shared(self, x_BLD, valid_BL):
        """Computes the shared biLSTM's states [B, L, 2 U], forwards first."""
        x_BZLD, valid_BZL = (to_reading_order(x, 2) for x in (x_BLD, valid_BL))
        lstms = [lstm(x_BZLD[:, z]) for z, lstm in enumerate(self.shared)]
        h_BZLU = scan_lstms(lstms, jnp.moveaxis(valid_BZL, 1, 0), self.unroll).swapaxes(0, 1)
        return to_text_order(h_BZLU).reshape(*x_BLD.shape[:2], -1).astype(self.dtype)


def read_uniform(model: Backbone, x_BLD, valid_BL, task: str):
    """Computes the states of the one LSTM; the task is in its words' vectors."""
    del task
    return scan_lstms([model.rnn(x_BLD)], valid_BL[None], model.unroll)[0]


READERS: dict[str, Callable] = {
    "uniform": read_uniform,
    "coupled": Backbone._read_coupled,
    "shared": Backbone._read_shared,
}
