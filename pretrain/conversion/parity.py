"""Compares a converted run with the outputs that a few releases publish."""

import functools
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np

from modules.layers.segment_memory import Memory
from modules.masks import Mask
from pretrain.conversion.systems import Source
from pretrain.data.tokenizers.character_ids import spell_words
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.formats.base import explain_read_errors
from pretrain.inference.run import Run
from pretrain.inference.trained_run import load_backbone_params, load_head_params
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import read_json

Differences = dict[str, tuple[float, float]]  # as a share of the largest number, and what it may be


def difference(output: Any, expected: np.ndarray) -> float:
    return float(np.abs(np.asarray(output) - expected).max() / np.abs(expected).max())


def load_params(run: Run) -> Any:
    return load_backbone_params(run, Layout(make_mesh()))[0]


# --- XLNet -----------------------------------------------------------------------------------


def compare_xlnet(run: Run, source: Source) -> Differences:
    """Compares outputs and memories beside the weights, as in the tests of keras-xlnet.

    They are .npy files, rows first: input_ids, seg_ids, mems_0 ..., and what is to come out of
    them, x_output and x_new_mems_0 ... .  All is read from left to right.  The output is the
    content's states where x is "tune" or "empty"; where it is "pre", the probabilities of each
    place's token, which its query knows where input_query is 0.
    """
    case = next((x for x in ("pre", "tune", "empty") if source.has(f"{x}_output.npy")), None)
    if case is None:
        return {}
    with jax.default_matmul_precision("highest"):
        output, memory_NBMD = _run_streams(run, source, case == "pre")
    differences = {"output": difference(output, _read_array(source, f"{case}_output"))}
    for n, memory_BMD in enumerate(() if memory_NBMD is None else memory_NBMD):
        differences[f"memory {n}"] = difference(
            memory_BMD, _read_array(source, f"{case}_new_mems_{n}")
        )
    return {name: (off, 1e-6) for name, off in differences.items()}


def _run_streams(run: Run, source: Source, predicts: bool):
    backbone: Any = run.backbone
    # The published memories keep a whole window.
    model = backbone.clone(reuse_len=0, dtype="float32"), run.head.clone(dtype="float32")
    tokens_BL = _read_array(source, "input_ids")
    memory = None
    if source.has("mems_0.npy"):
        layers = [_read_array(source, f"mems_{n}") for n in range(backbone.N)]
        memory = Memory(jnp.stack(layers))
    given = dict(
        segments_BL=_read_array(source, "seg_ids"), memory=memory, mask=Mask(is_causal=True)
    )
    if predicts:
        given |= _make_queries(_read_array(source, "input_query"))
    params = load_params(run), load_head_params(run, Layout(make_mesh()))
    return _forward(model, params, tokens_BL, given)


@functools.partial(jax.jit, static_argnums=0)
def _forward(model: Any, params: Any, tokens_BL, given: dict[str, Any]):
    bound, head = (
        part.bind({"params": weights}) for part, weights in zip(model, params, strict=True)
    )
    out = bound(tokens_BL, **given, train=False)
    output = out.h
    if "slots_BP" in given:
        output = jax.nn.softmax(head.logits(out.h, bound.table()))
    return output, out.memory and out.memory.h_NBMD


def _make_queries(blind_BL: np.ndarray) -> dict[str, Any]:
    # A query at every place, which sees the memory and the places before it.
    B, L = blind_BL.shape
    before = Mask(visible_BLJ=jnp.tri(L, k=-1, dtype=bool)[None], hides_slots=True)
    slots_BP = jnp.stack([jnp.arange(L)] * B)
    return dict(mask=before, slots_BP=slots_BP, blind_BP=blind_BL == 1)


def _read_array(source: Source, name: str) -> np.ndarray:
    """Reads one of the .npy files; UserError if it is missing or broken."""
    with explain_read_errors(path := source.find_file(f"{name}.npy")):
        x = np.load(path)
        return x.astype(np.float32) if x.dtype == np.float64 else x


# --- ELMo ------------------------------------------------------------------------------------

SENTENCES = "lm_embeddings_sentences.json"


def compare_elmo(run: Run, source: Source) -> Differences:
    """Compares the top layer's states beside the weights, as in the tests of bilm-tf.

    lm_embeddings_sentences.json holds lists of sentences, lm_embeddings_0.hdf5 ... what comes out
    of the lists: [2, words, D] by the sentence's number.  The k-th sentences of all lists are a
    batch, and a list is a row of it, which goes on from the state that its last sentence left.
    """
    if not source.has(SENTENCES):
        return {}
    texts = _read_sentences(source)
    with jax.default_matmul_precision("highest"):
        outputs = _run_elmo(run.backbone, load_params(run), texts)
    off = 0.0
    for number, rows in enumerate(outputs):
        with (
            explain_read_errors(path := source.find_file(f"lm_embeddings_{number}.hdf5")),
            h5py.File(path) as file,
        ):
            expected = [np.concatenate(file[str(k)][()], -1) for k in range(len(rows))]
        off = max(off, *map(difference, rows, expected))
    return {"states": (off, 1e-5)}


def _read_sentences(source: Source) -> list[list[list[str]]]:
    """Reads the words of each sentence; UserError if the lists are not of one length."""
    texts = read_json(path := source.find_file(SENTENCES))
    if not texts or len({len(text) for text in texts}) != 1:
        raise UserError(f"{path}: should be lists of sentences, as many in each")
    return [[["<S>", *line.split(), "</S>"] for line in text] for text in texts]


def _run_elmo(backbone: Any, params: Any, texts: list[list[list[str]]]) -> list[list[np.ndarray]]:
    model = backbone.clone(dtype="float32")
    longest = max(len(words) for text in texts for words in text)
    states = jax.jit(functools.partial(model.apply, method="layer_states"))
    memory, outputs = model.initial_memory(len(texts)), []
    for batch in zip(*texts, strict=True):
        # Any word will do where the mask says that there is none.
        padded = [words + ["</S>"] * (longest - len(words)) for words in batch]
        chars_BLW = np.stack([spell_words(words, model.W) for words in padded])
        valid_BL = np.arange(longest) < np.array([[len(words)] for words in batch])
        mask = Mask(valid_BL=valid_BL)
        h_NBLD, memory = states({"params": params}, chars_BLW, mask=mask, memory=memory)
        # Without the two marks, of which nothing is published.
        outputs.append([h_NBLD[-1, b, 1 : len(words) - 1] for b, words in enumerate(batch)])
    return list(map(list, zip(*outputs, strict=True)))
