"""A permutation LM whose backbone only notes what it is asked, and batches for it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.core import FrozenDict

import modules
from modules.backbones import Output
from modules.backbones.two_stream import Memory
from modules.heads import language_model
from modules.metrics import Sum
from pretrain.objectives import plm
from tests.support.compiler import quick_jit

B, L, V, REUSE, M, PREDICT_EVERY, CHUNKS = 3, 24, 40, 10, 7, 4, 3
P = L // PREDICT_EVERY
SPECIAL = FrozenDict({"cls": 3, "sep": 4})


class Spy(nn.Module):
    """In place of the backbone: notes what it is asked, remembers which token was where."""

    V: int = V
    D: int = 1
    N: int = 1
    M: int = M
    reuse_len: int = REUSE
    dtype: str = "float32"

    @nn.compact
    def __call__(self, tokens_BL, *, mask, memory, train, slots_BP, **asked):
        M = 0 if memory is None else self.M
        content = mask.dense(L, M + L)
        query = mask.dense(L, M + L, slots_BP)
        h_NBMD = None if memory is None else memory.h_NBMD
        self.note(content=content, query=query, slots_BP=slots_BP, memory_NBMD=h_NBMD)
        if memory is not None:
            read_BL1 = tokens_BL[:, : self.reuse_len, None].astype(jnp.float32)
            memory = Memory(jnp.concatenate([h_NBMD[0], read_BL1], 1)[None, :, -self.M :])
        return Output(slots_BP[..., None].astype(jnp.float32), memory)

    def initial_memory(self, B):
        return Memory(jnp.zeros((self.N, B, self.M, self.D)))

    def table(self):
        return None

    def note(self, **arrays):
        for name, x in arrays.items():
            self.sow("asked", name, x, reduce_fn=lambda _, new: new, init_fn=lambda: None)


class SpyHead(nn.Module):
    """In place of the head: passes on what is predicted."""

    def cross_entropy(self, h_BPD, ids_BP, weights_BP, table_VD, *, chunks):
        for name, x in dict(ids_BP=ids_BP, weights_BP=weights_BP, chunks=chunks).items():
            self.sow("asked", name, x, reduce_fn=lambda _, new: new, init_fn=lambda: None)
        return {"loss": Sum((h_BPD[..., 0] * weights_BP).sum(), weights_BP.sum(), train=True)}


def draw(seed=0, bidirectional=True):
    rng = np.random.default_rng(seed)
    tokens_BL = rng.integers(5, V, (B, L))
    tokens_BL[:, [REUSE + 5, L - 2]], tokens_BL[:, L - 1] = 4, 3
    batch = {
        "tokens_BL": tokens_BL,
        "segments_BL": np.sort(rng.integers(0, 2, (B, L))),
        "word_starts_BL": rng.random((B, L)) < 0.7,
        "document_start_BL": np.zeros((B, L), bool),
        "weight_B": np.ones(B, np.float32),
    }
    return batch | ({"backward_B": np.array([False, True, True])} if bidirectional else {})


@functools.cache
def program(objective, train):
    """Jitted: (key, batch, carry) -> (sums, what is left)."""

    @quick_jit
    def run(key, batch, carry):
        rngs = {"corrupt": key}
        return objective.apply(carry, batch, train=train, rngs=rngs, mutable=["memory", "asked"])

    return run


def listen(objective, batch, carry=None, seed=0, train=True):
    """(sums, what the spy was asked, the new carry)."""
    sums, out = program(objective, train)(jax.random.key(seed), batch, carry or {})
    asked = jax.device_get(out.pop("asked"))
    return sums, asked["backbone"] | asked["head"], out


def spied(**fields):
    fields = {"predict_every": PREDICT_EVERY, "loss_chunks": CHUNKS, **fields}
    return plm.Objective(Spy(), SpyHead(), special=SPECIAL, **fields)


@functools.cache
def tiny(memory=M, **fields):
    sizes = dict(V=V, D=8, H=2, K=4, N=2, F=12, dropout=0.0, attention_dropout=0.0)
    backbone = modules.build("two_stream", M=memory, reuse_len=REUSE, **sizes)
    fields |= dict(predict_every=PREDICT_EVERY, loss_chunks=2, special=SPECIAL)
    return plm.Objective(backbone, language_model.build(backbone, bias=True), **fields)
