"""A sentence's vectors are its own, whatever stands beside it."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from ml_collections import ConfigDict

import modules
from modules.backbones import Output, text_mask
from modules.layers import pooling
from modules.layers.pooling import LAYERED
from pretrain.data.tokenizers import words
from pretrain.data.tokenizers.character_ids import spell_words
from pretrain.inference import length_buckets
from pretrain.inference.embedder import Embedder, check_layers
from pretrain.inference.layer_selection import parse_layers, parse_pool
from pretrain.inference.trained_run import build_run
from pretrain.runtime.errors import UserError
from tests.support.compiler import quick_jit
from tests.support.tiny_models import KINDS, LSTM, draw_params, layout
from tests.support.xlnet_inputs import off

pytest_plugins = ["tests.support.tiny_models"]
pytestmark = pytest.mark.usefixtures("exactly")

FRAMES = {  # what stands before and behind a text, and the segment of the last mark
    "mlm": (["cls"], ["sep"], 0),
    "clm": ([], [], 0),
    "plm": ([], ["sep", "cls"], 2),
    "bilm": (["bos"], ["eos"], 0),
}


TOP = parse_layers("top", count=3)


def framed(run, kind, line, params):
    """(tokens, all layers' states) of a line and its marks: by itself, without padding."""
    tokenizer, (before, after, segment) = run.tokenizer, FRAMES[kind]
    before, after = ([tokenizer.special[name] for name in names] for names in (before, after))
    if kind == "bilm":
        words = line.split()
        tokens = spell_words(["<S>", *words, "</S>"], LSTM["W"]).astype(np.int32)[None]
    else:
        ids = tokenizer.encode([line])[0]
        words = [tokenizer.pieces[i] for i in ids]
        tokens = np.array([[*before, *ids, *after]], np.int32)
    L = tokens.shape[1]
    more = {"segments_BL": np.array([[0] * (L - 1) + [segment]])} if segment else {}
    states = quick_jit(functools.partial(run.backbone.apply, method="layer_states"))
    h_NBLD = states({"params": params}, tokens, mask=text_mask(run.backbone), **more).h
    return words, np.asarray(h_NBLD)[:, 0]


def alone(run, kind, line, params):
    """(tokens, all layers' vectors) of a line."""
    words, states = framed(run, kind, line, params)
    before, after = (len(names) for names in FRAMES[kind][:2])
    return words, states[:, before : states.shape[1] - after]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentences_vectors_are_what_it_gives_alone(run, lines, kind):
    many = [lines[8]] * 12  # more rows than their padded length
    embedder = Embedder(run(kind), layout(), parse_layers("all", count=3), tokens=768)
    found = {x.number: x for x in embedder([(0, lines[:4]), (4, lines[4:]), (9, many)])}
    assert sorted(found) == list(range(len(lines) + len(many)))
    for number in range(9, 21):
        assert off(found[number].vectors, found[8].vectors) < 1e-5
    for number in (0, 3):
        words, expected = alone(run(kind), kind, lines[number], embedder.params)
        assert found[number].tokens == words
        assert off(found[number].vectors, expected) < 1e-5
    assert found[2].vectors.shape == (3, 0, expected.shape[-1])
    assert off(found[5].vectors, found[0].vectors) < 1e-5
    assert embedder.batcher.empty == 2
    assert embedder.speed.words == sum(len(line.split()) for line in [*lines, *many])


def test_the_top_of_unequal_layers_is_what_the_model_gives():
    backbone = modules.build("awd_lstm", V=9, D=8, U=12)
    params = draw_params(backbone)
    tokenizer = words.Tokenizer([*words.MARKS, "a", "b", "c"], "blank")
    config = ConfigDict(dict(model=dict(name="awd_lstm"), text_format="ulmfit"))
    run = build_run(None, config, tokenizer, backbone)
    embedder = Embedder(run, layout(), parse_layers("top", count=4), params=params)
    found = {x.number: x for x in embedder([(0, ["a b c", "", "c"])])}
    mask = text_mask(backbone)
    read = functools.partial(backbone.apply, {"params": params}, mask=mask, train=False)
    h_BLD = quick_jit(read)(np.array([[1, 3, 4, 5], [1, 5, 1, 1]])).h
    assert off(found[0].vectors, h_BLD[0, 1:]) < 1e-5
    assert off(found[2].vectors, h_BLD[1, 1:2]) < 1e-5


def test_a_word_is_spelled_out_once_for_all_its_places_in_a_block(run, monkeypatch):
    embedder = Embedder(run("bilm"), layout(), parse_layers("top", count=3), tokens=64)
    read, spelled = embedder._read_words, []

    def counted(chars_VW):
        spelled.append(len(chars_VW))
        return read(chars_VW)

    monkeypatch.setattr(embedder, "_read_words", counted)
    block = ["ralor anew ralor", "anew", "ralor ralor"]
    assert len(list(embedder([(0, block), (3, ["other"])]))) == 4
    assert spelled == [2 + 2, 2 + 1]  # the marks, and the words


def test_a_whole_line_is_its_positions_mean_or_one_of_them(run, lines):
    takes = {"mean": lambda h: h.mean(1), "first": lambda h: h[:, 0], "last": lambda h: h[:, -1]}
    for pool, take in takes.items():
        choice = parse_layers("all", count=3)
        embedder = Embedder(run("bilm"), layout(), choice, tokens=64, pool=pool)
        [found] = embedder([(0, lines[:1])])
        states = framed(run("bilm"), "bilm", lines[0], embedder.params)[1]
        assert off(found.vectors, take(states)) < 1e-5


def test_sentences_are_pooled_as_the_field_names_it(run, lines):
    run = run("mlm")
    params = draw_params(pooler := run.backbone.clone(pooler=True))
    run = run._replace(backbone=pooler)
    h_NBLD = framed(run, "mlm", lines[0], params)[1][:, None]
    expected = {x: pooling.LAYERED[x](h_NBLD, np.ones(h_NBLD.shape[1:3], bool))[0] for x in LAYERED}
    pool = functools.partial(pooler.apply, {"params": params}, method="pool")
    expected["pooler"] = pool(h_NBLD[-1, :, 0])[0]
    for name, x_D in expected.items():
        choice, kind = parse_pool(name, count=3)
        embedder = Embedder(run, layout(), choice, params=params, pool=kind, normalize=True)
        [found] = embedder([(0, lines[:1])])
        assert off(found.vectors, x_D / np.linalg.norm(x_D)) < 1e-5


def test_marks_have_vectors_where_they_are_asked_for(run, lines):
    plain, marked = (
        next(Embedder(run("plm"), layout(), TOP, tokens=64, marks=marks)([(0, lines[:1])]))
        for marks in (False, True)
    )
    assert marked.tokens == [*plain.tokens, "<sep>", "<cls>"]
    assert off(marked.vectors[:-2], plain.vectors) < 1e-6


class Numbers(nn.Module):
    """A backbone that computes next to nothing: three layers of states [id, place, both]."""

    V: int
    L: int = 32

    def example(self):
        return jnp.zeros((1, self.L), jnp.int32)

    is_causal = False

    def layer_states(self, ids_BL, *, mask=None, segments_BL=None):
        place_BL = jnp.arange(ids_BL.shape[1]) + 0 * ids_BL
        h_BLD = jnp.stack([ids_BL, place_BL, ids_BL * place_BL], -1).astype(jnp.float32)
        return Output(jnp.stack([h_BLD, 2 * h_BLD, 3 - h_BLD]))


def test_averaged_layers_of_lines_are_pooled_each_as_alone(run):
    tokenizer = run("clm").tokenizer
    one = run("clm")._replace(backbone=Numbers(tokenizer.V))
    texts = [tokenizer.decode([i, i + 1, i + 2][: 1 + i % 3]) for i in range(100, 112)]
    embedder = Embedder(one, layout(), parse_layers("mean", count=3), params={}, pool="mean")
    found = {x.number: x.vectors for x in embedder([(0, texts)])}
    assert len(found) == 12
    for number, ids in enumerate(tokenizer.encode(texts)):
        assert off(found[number], Numbers(0).layer_states(ids[None]).h.mean((0, 1, 2))) < 1e-6


def test_eight_devices_give_what_one_gives(run, lines):
    choice = parse_layers("all", count=3)
    one, eight = (
        {x.number: x.vectors for x in Embedder(run("mlm"), layout(n), choice)([(0, lines)])}
        for n in (1, 8)
    )
    for number, expected in one.items():
        np.testing.assert_allclose(eight[number], expected, rtol=1e-5, atol=1e-5)


def test_programs_are_few_however_many_lengths_and_batches_there_are(run):
    one, rng = run("clm")._replace(backbone=Numbers(V=300)), np.random.default_rng(0)
    embedder = Embedder(one, layout(), parse_layers("top", count=3), params={}, tokens=32)
    texts = ["".join(rng.choice([*"jqxz"], n)) for n in rng.integers(0, 30, 80)]
    assert len(list(embedder([(at, texts[at : at + 20]) for at in (0, 20, 40, 60)]))) == 80
    assert embedder._programs.cache_info().misses <= 2 * len(length_buckets.list_lengths(32))
    assert embedder._programs.cache_info().hits > 10


def test_a_line_that_is_too_long_is_named_or_cut(run, lines):
    long = " ".join(lines) * 4
    room = 32 - 2
    refused = Embedder(run("mlm"), layout(), parse_layers("all", count=3))
    with pytest.raises(UserError, match=f"line 8 has .* tokens, of which {room} can be read"):
        list(refused([(7, [long])]))
    cutting = Embedder(run("mlm"), layout(), parse_layers("all", count=3), cut=True, tokens=64)
    [found] = cutting([(7, [long])])
    whole = run("mlm").tokenizer.encode([long])[0]
    assert found.tokens == [run("mlm").tokenizer.pieces[i] for i in whole[:room]]
    assert found.vectors.shape == (3, room, 16)
    assert cutting.batcher.cuts == 1


def test_layers_of_unequal_widths_are_refused_at_the_door():
    backbone = modules.build("text_rcnn", V=5, D=4, U=3, F=6)
    every = parse_layers("all", count=backbone.N + 1)
    with pytest.raises(UserError, match=r"model: words are 4 .* states 6: .* model\.D=6"):
        check_layers(backbone, every)
    check_layers(modules.build("text_rcnn", V=5, D=4, U=3, F=4), every)
    check_layers(backbone, parse_layers("top", count=backbone.N + 1))
