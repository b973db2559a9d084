"""`pretrain.generate`: the cache changes nothing, rows are alone, texts end where told."""

import functools

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import modules
from modules.masks import Mask
from pretrain.data.tokenizers import byte_bpe
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.generator import Row, Writer
from pretrain.inference.sampling import Sampler
from pretrain.inference.trained_run import build_run
from pretrain.runtime.errors import UserError
from tests.support import tiny_models
from tests.support import transformer_inputs as cases
from tests.support.compiler import quick_jit

pytest_plugins = ["tests.support.tiny_runs"]

PROMPTS = ["HELLO", "", "abcdefg", "b"]
TOKENS = 9  # with the longest prompt, all that fits


class Letters:
    """A token is a letter, "A" the first; "X" ends a document."""

    special = {"eod": ord("X") - ord("A")}

    def __init__(self, V: int = 1 << 10):
        self.V = V

    def encode(self, texts):
        return [np.array([ord(letter) - ord("A") for letter in text], np.int32) for text in texts]

    def decode(self, ids):
        return "".join(chr(ord("A") + int(token)) for token in ids)


@functools.cache
def writer(kind: str = "banded", devices: int = 1, **sampling) -> Writer:
    """With weights drawn at random."""
    model = cases.DECODERS[kind]
    layout = Layout(make_mesh(data=1, fsdp=-1, devices=jax.devices()[:devices]))
    params = {"backbone": cases.draw(model), "head": {}}
    params = jax.device_put(params, layout.make_shardings(params))
    run = build_run(None, ConfigDict(dict(objective=dict(name="clm"))), Letters(), model)
    return Writer(run, layout, Sampler(**sampling), params)


def written(writer: Writer, prompts=PROMPTS, tokens: int = TOKENS, **options) -> list[str]:
    """The whole texts, without the prompts."""
    texts = [""] * len(prompts)
    for row, text, _ in writer.generate(prompts, tokens=tokens, **options):
        texts[row] += text
    return texts


# --- the model -------------------------------------------------------------------------------


@functools.cache
def likeliest(kind: str):
    """The likeliest token at every place of a row that is computed whole."""
    model, params = cases.DECODERS[kind], {"params": cases.draw(cases.DECODERS[kind])}

    def choose(tokens_BL):
        h_BLD = model.apply(params, tokens_BL, mask=Mask(is_causal=True), train=False).h
        return cases.read_by_head(model, params["params"], "logits", h_BLD).argmax(-1)

    return quick_jit(choose)


def recomputed(kind: str, prompt: str, tokens: int = TOKENS, bos: bool = True) -> str:
    """The likeliest token after all that is written so far, each time of the whole anew."""
    choose, L, letters = likeliest(kind), cases.DECODERS[kind].L, Letters()
    eod = letters.special["eod"]
    ids = [*[eod] * bos, *letters.encode([prompt])[0].tolist()]
    for _ in range(tokens):
        row_1L = np.pad(ids, (0, L - len(ids)))[None]
        ids.append(int(choose(row_1L)[0, len(ids) - 1]))
        if ids[-1] == eod:
            return letters.decode(ids[bos:-1])[len(prompt) :]
    return letters.decode(ids[bos:])[len(prompt) :]


@pytest.mark.parametrize("kind", cases.DECODERS)
def test_reading_on_writes_what_recomputing_everything_writes(kind):
    texts = written(writer(kind, temperature=0.0))
    assert texts == [recomputed(kind, prompt) for prompt in PROMPTS]
    assert max(map(len, texts)) == TOKENS
    assert len({*texts}) > 1


LSTMS = {
    "awd_lstm": dict(V=24, D=8, U=12),
    "recurrent": dict(V=24, D=8, U=8, N=2, Z=1),
    "elmo": dict(V=24, D=8, U=12, N=2, Z=1, inputs="words"),
}


@pytest.mark.parametrize("name", LSTMS)
def test_the_state_of_an_lstm_writes_what_reading_everything_again_writes(name):
    model, letters = modules.build(name, **LSTMS[name]), Letters()
    params = {"backbone": tiny_models.draw_params(model), "head": {}}
    run = build_run(None, ConfigDict(dict(objective=dict(name="clm"))), letters, model)
    layout = Layout(make_mesh(devices=jax.devices()[:1]))
    texts = written(Writer(run, layout, Sampler(temperature=0.0), params), tokens=40)

    @quick_jit
    def choose(tokens_BL):
        bound = model.bind({"params": params["backbone"]})
        h_BLD = bound(tokens_BL, mask=Mask(is_causal=True), train=False).h
        return (h_BLD @ bound.table().T).argmax(-1)

    for prompt, text in zip(PROMPTS, texts, strict=True):
        ids = letters.encode(["X" + prompt + text])[0]
        row_1L = np.pad(ids, (0, 64 - len(ids)))[None]
        best = letters.decode(choose(row_1L)[0, len(prompt) : len(ids) - 1])
        assert best == text
        assert len(text) == 40 or letters.decode(choose(row_1L)[0, [len(ids) - 1]]) == "X"


def test_a_model_that_reads_from_the_end_does_not_write():
    model = modules.build("awd_lstm", **LSTMS["awd_lstm"])
    config = ConfigDict(dict(objective=dict(name="clm"), text_format="ulmfit_backward"))
    with pytest.raises(UserError, match="texts that go on need a text_format that reads from left"):
        Writer(build_run(None, config, Letters(), model), Layout(make_mesh()))


def test_without_bos_the_prompt_is_all_that_is_read():
    prompts = [prompt for prompt in PROMPTS if prompt]
    pen = writer("pre", temperature=0.0)
    texts = written(pen, prompts, tokens=TOKENS + 1, bos=False)
    assert texts == [recomputed("pre", prompt, TOKENS + 1, bos=False) for prompt in prompts]
    assert [text[:TOKENS] for text in texts] != written(pen, prompts)
    with pytest.raises(UserError, match="bos=False: an empty prompt leaves nothing to go on"):
        written(pen, [""], bos=False)
    with pytest.raises(UserError, match=f"there is room for {TOKENS + 1}$"):
        written(pen, ["abcdefg"], tokens=TOKENS + 2, bos=False)


def test_rows_beyond_the_vocabulary_are_never_written():
    pen = writer.__wrapped__("pre", temperature=100.0)
    assert max(ord(x) for x in "".join(written(pen, ["A"] * 8))) > ord("E")
    pen.run = pen.run._replace(tokenizer=Letters(5))
    pen._programs.cache_clear()
    assert {*"".join(written(pen, ["A"] * 8))} == {*"ABCDE"}


def test_a_text_does_not_depend_on_the_others():
    pen = writer()
    together = written(pen)
    assert written(pen, PROMPTS[:1]) == together[:1]
    assert written(pen, ["GFEDCB", "", "a", "b", "c"])[1] == together[1]


def test_a_seed_repeats_its_texts_and_another_gives_others():
    first = written(writer(), seed=1)
    assert written(writer.__wrapped__(), seed=1) == first
    assert written(writer(), seed=2) != first


def test_equal_prompts_go_on_differently_unless_greedy():
    assert len({*written(writer(), ["A"] * 4)}) > 1
    assert len({*written(writer(temperature=0.0), ["A"] * 4)}) == 1


def test_the_best_of_one_is_greedy():
    assert written(writer(top_k=1)) == written(writer(temperature=0.0))


@pytest.mark.parametrize("prompts", [PROMPTS, PROMPTS * 2])
def test_eight_devices_write_what_one_writes(prompts):
    spread = writer(devices=8)
    assert not spread.params["backbone"]["token_VD"].sharding.is_fully_replicated
    assert written(spread, prompts) == written(writer(), prompts)


def test_what_does_not_fit_is_refused_with_the_room_there_is():
    with pytest.raises(UserError, match=r"'abcdefg' of 7 tokens and 10 more .* room for 9"):
        writer().generate(PROMPTS, tokens=TOKENS + 1)


def test_no_prompts_give_no_texts_and_no_program():
    assert list(writer().generate([])) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (dict(tokens=0), "tokens=0: .* at least 1"),
        (dict(stops=["x", ""]), "one is empty"),
        (dict(seed=-1), "seed=-1: .* from 0"),
        (dict(seed=1 << 31), "to 2147483647"),
    ],
)
def test_numbers_out_of_range_and_empty_stops_are_refused(options, named):
    with pytest.raises(UserError, match=named):
        writer().generate(PROMPTS, **options)


def test_prompts_of_about_one_length_share_their_programs():
    pen = writer.__wrapped__()
    for prompt in ("abcd", "abcde", "abcdef"):
        written(pen, [prompt], tokens=2)
    assert pen._programs.cache_info().misses == 1


def test_only_causal_models_write():
    run = build_run(None, ConfigDict(dict(model=dict(name="transformer"))), Letters(), cases.tiny())
    with pytest.raises(UserError, match="transformer, cannot generate: it is not causal"):
        Writer(run, Layout(make_mesh()))
    model = dict(name="two_stream", V=8, D=4, H=1, K=4, N=1, F=4, attention="causal")
    run = build_run(None, ConfigDict(dict(model=model)), Letters(), modules.build(**model))
    with pytest.raises(
        UserError, match="cannot generate: it has no keys and values, nor states of"
    ):
        Writer(run, Layout(make_mesh()))


def test_rows_end_each_at_its_own_end_with_tokens_counted():
    pen, prompts = writer(temperature=3.0), PROMPTS * 4
    pieces = list(pen.generate(prompts, tokens=TOKENS))
    lengths = [sum(len(text) for i, text, _ in pieces if i == row) for row in range(len(prompts))]
    assert min(lengths) < TOKENS == max(lengths)
    assert sorted(row for row, _, last in pieces if last) == [*range(len(prompts))]
    ends = sum(length < TOKENS for length in lengths)
    assert pen.speed.written == sum(lengths) + ends - len(prompts)  # the first are not counted
    assert pen.speed.read == sum(1 + len(prompt) for prompt in prompts)
    assert pen.speed.reading > 0
    assert pen.speed.writing > 0


# --- a text ----------------------------------------------------------------------------------

BYTES = byte_bpe.Tokenizer([*byte_bpe.BYTES, byte_bpe.EOD], [])  # each byte is a token
EOD = BYTES.special["eod"]


def shown(ids, prompt: str = "", tokens: int = 100, stops=()) -> list[str]:
    """What a row shows as each of these tokens comes, until it is done."""
    row, pieces = Row(BYTES, encoded(prompt), tokens, stops), []
    while not row.done and len(pieces) < len(ids):
        pieces.append(row.add(ids[len(pieces)]))
    return pieces


def encoded(text: str) -> list[int]:
    return BYTES.encode([text])[0].tolist()


HALF = encoded("a€")[:-1]
SHOWN = {  # what comes, under which options, and what is shown after each token
    "a character when it is whole": (encoded("aé€"), dict(prompt="é "), "a||é|||€"),
    "half of one when a text ends": ([*HALF, EOD], {}, "a|||\ufffd"),
    "half of one when no more may come": (HALF, dict(tokens=3), "a||\ufffd"),
    "half of one when another follows": ([encoded("é")[0], *encoded("ab")], {}, "|\ufffda|b"),
    "to the end of its document": ([*encoded("ab"), EOD, *encoded("c")], {}, "a|b|"),
    "so many tokens": (encoded("abcdef"), dict(tokens=4), "a|b|c|d"),
    "up to a stop string": (encoded("ab.\n\ncd"), dict(stops=["\n\n"]), "a|b|.||"),
    "half of a stop string": (encoded("ab.\ncd"), dict(stops=["\n\n"]), "a|b|.||\nc|d"),
    "its begin when a text ends": ([*encoded("aEN"), EOD], dict(stops=["END"]), "a|||EN"),
    "its begin when no more may come": (encoded("aEN"), dict(tokens=3, stops=["END"]), "a||EN"),
    "none of the prompt's": (encoded("x END"), dict(prompt="END E", stops=["END"]), "x| |||"),
}


@pytest.mark.parametrize("case", SHOWN)
def test_of_a_text_is_shown(case):
    ids, options, pieces = SHOWN[case]
    assert shown(ids, **options) == pieces.split("|")


def test_the_first_of_the_stop_strings_counts():
    assert "".join(shown(encoded("one two three"), stops=["ree", "wo t", "two"])) == "one "
