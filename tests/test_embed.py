"""`pretrain.embed`: a sentence's vectors are its own, whatever stands beside it, and all come."""

import dataclasses
import functools
import json
import signal
import subprocess
import sys

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pretrain import checkpoint, data, embed, embedding, vectors
from pretrain.data import tokenizers
from pretrain.data.characters import characters
from pretrain.embedding import Embedder, chosen
from pretrain.errors import UserError
from pretrain.finished import opened
from pretrain.framing import frame
from pretrain.sharding import Layout, make_mesh
from tests import test_transformer_peers as peers
from tests import toy as toys
from tests import transformer_cases as cases
from tests import transformer_reference as reference
from tests import xlnet_cases, xlnet_reference
from tests.xlnet_cases import off, quick_jit

pytest_plugins = ["tests.toy"]

KINDS = ["mlm", "clm", "plm", "bilm"]
STEP = 3
LSTM = dict(name="lstm", V=20, D=8, U=12, N=2, E=4, filters=((1, 4), (2, 8)), highways=1, W=12)


@pytest.fixture(autouse=True)
def _quickly(quick):
    """What these tests compile is compiled once, hastily, and with exact products."""
    with jax.default_matmul_precision("highest"):
        yield


@pytest.fixture(scope="module")
def run(toy, tmp_path_factory):
    """A run of that objective with weights drawn at random, in a workdir not to be changed."""

    @functools.cache
    def make(kind):
        config = toy.config("plm" if kind == "bilm" else kind)
        workdir = tmp_path_factory.mktemp(kind)
        if kind == "bilm":
            config.model, config.objective.name = LSTM, kind
            words = dict(name="words", split="blank")
            tokenizer = tokenizers.learn(iter(toy.text.read_text().splitlines()), **words)
        else:
            tokenizer = data.load(**config.corpus).tokenizer
        tokenizer.save(workdir / "tokenizer")
        checkpoint.write_config(workdir, json.loads(config.to_json_best_effort()))
        save(workdir, drawn(opened(workdir).backbone))
        return opened(workdir)

    return make


def save(workdir, params, step=STEP):
    kept = checkpoint.Checkpoints(workdir, asynchronous=False)
    kept.save(step, {"params": {"backbone": params}}, {})
    kept.close()


def drawn(backbone, seed=0):
    """Parameters so large that all of them matter."""
    tokens = backbone.example()
    valid_BL = np.ones(tokens.shape[:2], bool)
    init = functools.partial(backbone.init, method="encode", train=False)
    shapes = jax.eval_shape(init, jax.random.key(0), tokens, valid_BL)["params"]
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(0.3, 0.4, x.shape), x.dtype), shapes)


def layout(devices=1):
    return Layout(make_mesh(devices=jax.devices()[:devices]))


@pytest.fixture
def lines(toy):
    """Some of the toy's, of several lengths, in no order; two are equal and two are empty."""
    words = toy.text.read_text().split()
    return [" ".join(words[5 * n : 6 * n]) for n in (3, 1, 0, 6, 2, 3, 0, 5, 1)]


def read(path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: x[:] for name, x in file.items() if name != vectors.INDEX}


# --- the states of a backbone ----------------------------------------------------------------

RAGGED = np.arange(11) < [[11], [7], [4]]
TRANSFORMERS = {
    "BERT": cases.BERT,
    "GPT-1": cases.GPT1,
    "GPT-2": cases.GPT2,
    "banded": cases.GPT2 | {"window": 3},
}


@pytest.mark.parametrize("system", TRANSFORMERS)
def test_a_layers_states_are_the_reference_s_of_a_model_with_so_many_layers(system):
    model = cases.tiny(**TRANSFORMERS[system])
    params, tokens_BL, pre = cases.draw(model), cases.tokens(*RAGGED.shape), model.norm == "pre"
    h_NBLD = quick_jit(functools.partial(model.apply, method="states"))(
        {"params": params}, tokens_BL, RAGGED
    )
    assert h_NBLD.shape == (model.N + 1, *RAGGED.shape, model.D)
    kind = dict(pre=pre, causal=model.attention == "causal", window=model.window)
    for n in range(model.N + 1):
        below = params | {"layers": jax.tree.map(lambda x, n=n: x[:n], params["layers"])}
        for row, length in enumerate(RAGGED.sum(1)):
            theirs = reference.states(
                below, tokens_BL[row], length=length, epsilon=model.epsilon, **kind
            )
            own = np.asarray(h_NBLD[n, row], float)
            if pre and n < model.N:  # the reference norms its top, whichever that is
                own = reference._norm(own, reference._exact(params["final_norm"]), model.epsilon)
            assert off(own[:length], theirs[:length]) < 3e-6


@pytest.mark.parametrize("system", peers.PEERS)
def test_every_layers_states_are_hugging_face_s(system):
    torch = pytest.importorskip("torch", reason="compares with torch, which is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    kind, flags, fields, arranged = peers.PEERS[system]
    model = cases.tiny(
        V=peers.V, D=peers.D, H=peers.H, K=peers.D // peers.H, N=peers.N, F=peers.F, L=peers.L,
        **fields,
    )  # fmt: skip
    peer = peers.drawn_peer(torch, transformers, kind, flags)
    tokens_BL, valid_BL = cases.tokens(3, peers.L), np.arange(peers.L) < [[peers.L], [5], [9]]
    given = dict(attention_mask=torch.tensor(valid_BL).long(), output_hidden_states=True)
    theirs = [x.detach().numpy() for x in peer(torch.tensor(tokens_BL), **given).hidden_states]
    weights = {
        peers.original(name): peers.turned(name, x.detach().numpy())
        for name, x in peer.named_parameters()
    }
    params = {"params": jax.tree.map(np.float32, arranged(weights, peers.H))}
    ours = quick_jit(functools.partial(model.apply, method="states"))(params, tokens_BL, valid_BL)
    for own, their in zip(ours, theirs, strict=True):
        assert off(own * valid_BL[..., None], their * valid_BL[..., None]) < 5e-6


@pytest.mark.parametrize("untied", [True, False])
def test_a_content_layers_states_are_the_reference_s_of_a_model_with_so_many_layers(untied):
    cfg = xlnet_reference.Config(n_layer=3, untie_r=untied)
    weights, model = xlnet_reference.random_weights(cfg, 0), xlnet_cases.backbone(cfg)
    rng = np.random.default_rng(0)
    tokens_BL = rng.integers(0, cfg.n_token, RAGGED.shape)
    segments_BL = rng.integers(0, 3, RAGGED.shape)
    h_NBLD = quick_jit(functools.partial(model.apply, method="states"))(
        {"params": xlnet_reference.ours(weights, cfg)}, tokens_BL, RAGGED, segments_BL=segments_BL
    )
    assert len(h_NBLD) == cfg.n_layer + 1
    for n in range(cfg.n_layer + 1):
        fewer = dataclasses.replace(cfg, n_layer=n)
        for row, valid_L in enumerate(RAGGED):
            hidden_LL = np.broadcast_to(~valid_L, (len(valid_L),) * 2)
            theirs, _ = xlnet_reference.transformer(
                fewer, weights, tokens_BL[row], segments_BL[row], perm_mask=hidden_LL
            )
            assert off(h_NBLD[n, row][valid_L], theirs[valid_L]) < 3e-6


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_states_are_what_encode_gives(run, kind):
    backbone, params = run(kind).backbone, {"params": drawn(run(kind).backbone)}
    W = backbone.example().shape[2:]
    tokens = np.random.default_rng(0).integers(0, 20, (*RAGGED.shape, *W))
    top = quick_jit(functools.partial(backbone.apply, method="encode", train=False))
    every = quick_jit(functools.partial(backbone.apply, method="states"))
    h_BLD, h_NBLD = (f(params, tokens, RAGGED)[..., RAGGED, :] for f in (top, every))
    assert off(h_NBLD[-1], h_BLD) < 1e-6


# --- sentences to vectors --------------------------------------------------------------------

FRAMES = {  # what stands before and behind a text, and the segment of the last mark
    "mlm": (["cls"], ["sep"], 0),
    "clm": ([], [], 0),
    "plm": ([], ["sep", "cls"], 2),
    "bilm": (["bos"], ["eos"], 0),
}


def alone(run, kind, line, params):
    """(tokens, all layers' vectors) of a line: framed by hand, by itself, without padding."""
    tokenizer, (before, after, segment) = run.tokenizer, FRAMES[kind]
    before, after = ([tokenizer.special[name] for name in names] for names in (before, after))
    if kind == "bilm":
        words = line.split()
        tokens = characters(["<S>", *words, "</S>"], LSTM["W"]).astype(np.int32)[None]
    else:
        ids = tokenizer.encode([line])[0]
        words = [tokenizer.pieces[i] for i in ids]
        tokens = np.array([[*before, *ids, *after]], np.int32)
    L = tokens.shape[1]
    more = {"segments_BL": np.array([[0] * (L - 1) + [segment]])} if segment else {}
    states = quick_jit(functools.partial(run.backbone.apply, method="states"))
    h_NBLD = states({"params": params}, tokens, np.ones((1, L), bool), **more)
    return words, np.asarray(h_NBLD)[:, 0, len(before) : L - len(after)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentences_vectors_are_what_it_gives_alone(run, lines, kind):
    embedder = Embedder(run(kind), layout(), chosen("all", count=3), tokens=64)
    found = {x.number: x for x in embedder([(0, lines[:4]), (4, lines[4:])])}
    assert sorted(found) == list(range(len(lines)))
    for number in (0, 3):
        words, expected = alone(run(kind), kind, lines[number], embedder.params)
        assert found[number].tokens == words
        assert off(found[number].vectors, expected) < 1e-5
    assert found[2].vectors.shape == (3, 0, expected.shape[-1])
    assert off(found[5].vectors, found[0].vectors) < 1e-5
    assert embedder.empty == 2
    assert embedder.speed.words == sum(len(line.split()) for line in lines)


def test_every_word_is_read_with_its_own_characters_and_none_is_taken_for_a_mark(run):
    embedder = Embedder(run("bilm"), layout(), chosen("0", count=3), tokens=64)
    line = "ralor never-seen ralor </S> <UNK>"
    [found] = embedder([(0, [line])])
    assert found.tokens == line.split()
    one, other, again, mark, unknown = found.vectors
    np.testing.assert_array_equal(one, again)
    assert off(other, one) > 0.01
    np.testing.assert_array_equal(mark, unknown)


def test_lines_without_words_have_vectors_without_rows(run):
    embedder = Embedder(run("bilm"), layout(), chosen("top", count=3), tokens=64)
    assert [x.vectors.shape for x in embedder([(0, ["", " "])])] == [(0, 16)] * 2


def test_a_word_beyond_the_models_vocabulary_is_the_unknown_one(run):
    tokenizer, V = run("bilm").tokenizer, 10
    line = " ".join([*tokenizer.pieces[5:15], "never-seen"])
    [tokens], [ids], _ = embedding.Pieces(tokenizer, V)([line])
    assert ids.tolist() == [5, 6, 7, 8, 9, *[tokenizer.special["unk"]] * 6]
    assert tokens == [*tokenizer.pieces[5:15], "<UNK>"]


def test_eight_devices_give_what_one_gives(run, lines):
    one, eight = (
        {x.number: x.vectors for x in Embedder(
            run("mlm"), layout(devices), chosen("all", count=3), tokens=64)([(0, lines)])}
        for devices in (1, 8)
    )  # fmt: skip
    for number, expected in one.items():
        np.testing.assert_allclose(eight[number], expected, rtol=1e-5, atol=1e-5)


def test_layers_are_chosen_and_mixed():
    h_NBLD = np.random.default_rng(0).normal(0, 1, (3, 2, 5, 4)).astype(np.float32)
    found = {layers: chosen(layers, count=3)(h_NBLD) for layers in ("all", "top", "1", "2,0")}
    expected = {"all": h_NBLD, "top": h_NBLD[2], "1": h_NBLD[1], "2,0": h_NBLD[[2, 0]]}
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    np.testing.assert_allclose(chosen("mean", count=3)(h_NBLD), h_NBLD.mean(0), atol=1e-6)
    mixed = 0.5 * h_NBLD[0] - 2 * h_NBLD[2]
    np.testing.assert_allclose(chosen("0,2", "0.5,-2", count=3)(h_NBLD), mixed, atol=1e-6)


def test_a_sum_of_layers_is_added_up_in_float32():
    h_NBLD = jnp.full((2, 1, 1, 1), 1 / 3, jnp.bfloat16)
    summed = chosen("all", "0.1,0.001", count=2)(h_NBLD)
    np.testing.assert_allclose(summed, 0.101 * float(h_NBLD[0, 0, 0, 0]), rtol=1e-6)


WRONG_LAYERS = {
    ("3", ""): "layers 0 to 2",
    ("-1", ""): "layers 0 to 2",
    ("first", ""): "all, top, mean or numbers",
    ("all", "1,0"): "2 weights for 3 layers",
    ("0,1", "1,x"): "as weights numbers",
    ("mean", "1,0,0"): "leave out --mix",
}


@pytest.mark.parametrize(("layers", "mix"), WRONG_LAYERS)
def test_layers_that_are_not_there_and_weights_for_others_are_refused(layers, mix):
    with pytest.raises(UserError, match=WRONG_LAYERS[layers, mix]):
        chosen(layers, mix, count=3)


def test_bfloat16_gives_nearly_the_same_in_float32(run, lines):
    exact = run("mlm")
    rough = exact._replace(backbone=exact.backbone.clone(dtype="bfloat16"))
    one, other = (
        next(Embedder(each, layout(), chosen("all", count=3), tokens=64)([(0, lines[:1])])).vectors
        for each in (exact, rough)
    )
    assert other.dtype == np.float32
    assert 1e-4 < off(other, one) < 0.1


@pytest.mark.parametrize("longest", [8, 32, 100, 512])
def test_rows_are_padded_by_a_quarter_at_most_and_to_few_lengths(longest):
    lengths = embedding.ladder(longest)
    assert len(lengths) <= 4 * np.log2(longest / 8) + 2
    for n in range(8, longest + 1):
        assert n <= next(L for L in lengths if n <= L) <= 1.25 * n


def test_programs_are_few_however_many_lengths_and_batches_there_are(run, toy):
    words = toy.text.read_text().split()
    choice, rng = chosen("top", count=3), np.random.default_rng(0)
    embedder = Embedder(run("bilm"), layout(), choice, tokens=32)
    lengths = rng.integers(0, 30, 80)
    blocks = [(at, [" ".join(words[:n]) for n in lengths[at : at + 20]]) for at in (0, 20, 40, 60)]
    assert len(list(embedder(blocks))) == 80
    assert embedder._programs.cache_info().misses <= 2 * len(embedding.ladder(32))
    assert embedder._programs.cache_info().hits > 10


def test_a_line_that_is_too_long_is_named_or_cut(run, lines):
    long = " ".join(lines) * 4
    room = 32 - 2
    refused = Embedder(run("mlm"), layout(), chosen("all", count=3))
    with pytest.raises(UserError, match=f"line 8 has .* tokens, of which {room} can be read"):
        list(refused([(7, [long])]))
    cutting = Embedder(run("mlm"), layout(), chosen("all", count=3), cut=True, tokens=64)
    [found] = cutting([(7, [long])])
    whole = run("mlm").tokenizer.encode([long])[0]
    assert found.tokens == [run("mlm").tokenizer.pieces[i] for i in whole[:room]]
    assert found.vectors.shape == (3, room, 16)
    assert cutting.cuts == 1


def test_of_an_objective_that_is_not_known_the_frame_is_not_either():
    with pytest.raises(UserError, match="'nsp'"):
        frame("nsp")


# --- a text to a file ------------------------------------------------------------------------


@pytest.fixture
def text(lines, tmp_path):
    """The lines in a file, blocks of three."""
    path = tmp_path / "in.txt"
    path.write_text("".join(f" {line}\n" for line in lines))
    return path


@pytest.fixture
def threes(monkeypatch):
    monkeypatch.setattr(embed, "LINES", 3)
    monkeypatch.setattr(embed, "make_mesh", lambda: make_mesh(devices=jax.devices()[:1]))


@pytest.fixture
def write(run, threes):
    """Writes a text's vectors; returns what was said."""

    def write(text, out, kind="clm", **options):
        said = []
        embed.embed(run(kind), text, out, said.append, tokens=64, **options)
        return said

    return write


def test_the_file_is_as_readers_of_elmo_files_expect_it(run, write, text, lines, tmp_path):
    said = write(text, tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        assert set(file) == {str(i) for i in range(len(lines))} | {"sentence_to_index"}
        assert file["sentence_to_index"].shape == (1,)
        index = json.loads(file["sentence_to_index"][0])
        assert index == {line: str(i) for i, line in enumerate(lines)}  # the last of equal ones
        for i, line in enumerate(lines):
            ids = run("clm").tokenizer.encode([line])[0]
            assert file[str(i)].shape == (3, len(ids), 16)
            assert file[str(i)].dtype == np.float32
            pieces = [run("clm").tokenizer.pieces[token] for token in ids]
            assert json.loads(file[str(i)].attrs["tokens"]) == pieces
    assert said[0] == "2 lines have no tokens: their arrays have no rows"
    assert said[-1].startswith("9 sentences, 21 words")
    assert not (tmp_path / "out.h5.partial").exists()


def test_tokens_of_a_line_of_any_length_are_kept(tmp_path):
    tokens = [f"token {n}" for n in range(20_000)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        vectors.add(file, 0, tokens, np.zeros((2, 20_000, 1), np.float32))
    with h5py.File(tmp_path / "a.h5") as file:
        assert json.loads(file["0"].attrs["tokens"]) == tokens


def test_after_an_error_finished_blocks_are_kept_and_the_others_made(
    write, text, tmp_path, monkeypatch
):
    write(text, tmp_path / "straight.h5")
    add = vectors.add

    def fails(file, number, *rest):
        if number == 6:
            raise OSError("no space left on device")
        add(file, number, *rest)

    monkeypatch.setattr(vectors, "add", fails)
    with pytest.raises(UserError, match=r"00000002.h5: cannot be written: no space left"):
        write(text, tmp_path / "out.h5")
    monkeypatch.setattr(vectors, "add", add)
    assert write(text, tmp_path / "out.h5")[-1].startswith("3 sentences")
    toys.assert_same(read(tmp_path / "out.h5"), read(tmp_path / "straight.h5"))


def test_a_full_disk_is_named_also_when_it_is_noticed_at_the_end(tmp_path):
    blocks = vectors.Blocks(tmp_path / "out.h5", {})
    late = "Can't decrement id ref count (unable to extend file properly, errno = 28, error ...)"
    full = r"00000000\.h5: cannot be written: No space left on device"
    with pytest.raises(UserError, match=full), blocks.block():
        raise RuntimeError(late)
    with pytest.raises(RuntimeError, match="out of memory"), blocks.block():
        raise RuntimeError("out of memory")
    assert blocks.done == 0


KILLED = """
import sys, time
from pathlib import Path
from pretrain import embed, finished, vectors
add = vectors.add
def slowly(*sentence):
    add(*sentence)
    time.sleep(0.2)
vectors.add, embed.LINES = slowly, 3
workdir, text, out = map(Path, sys.argv[1:])
embed.embed(finished.opened(workdir), text, out, tokens=64)
"""


def test_a_kill_in_mid_write_loses_one_block_and_changes_nothing(run, write, toy, text, tmp_path):
    write(text, tmp_path / "straight.h5")
    out, workdir = tmp_path / "out.h5", run("clm").workdir
    words = [sys.executable, "-c", KILLED, workdir, text, out]
    process = subprocess.Popen(
        list(map(str, words)), cwd=toys.ROOT, env=toy.environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    begun = vectors.partial(out) / "00000001.draft"
    toys.wait_for(begun.exists, process)
    with pytest.raises(UserError, match="in use by pid"):
        write(text, out)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not out.exists()
    assert write(text, out)[-1].startswith(f"{9 - 3 * 1} sentences")
    toys.assert_same(read(out), read(tmp_path / "straight.h5"))


def test_what_was_begun_from_something_else_is_refused_by_name(
    run, write, text, tmp_path, monkeypatch
):
    out = tmp_path / "out.h5"
    monkeypatch.setattr(vectors.Blocks, "join", lambda *_: None)  # as if stopped before
    write(text, out)
    with pytest.raises(UserError, match=r"out.h5.partial was begun .* delete(.|\n)*choice.layers"):
        write(text, out, layers="top")
    save(run("clm").workdir, drawn(run("clm").backbone, seed=1), STEP + 1)
    with pytest.raises(UserError, match=r"step: 3 -> 4\n  weights: "):
        write(text, out)
    text.write_text("something else\n")
    with pytest.raises(UserError, match="text: "):
        write(text, out)


def test_a_line_without_an_end_is_refused_at_the_door(tmp_path, write):
    (tmp_path / "in.txt").write_text("a\n" + "word " * 300_000)
    with pytest.raises(UserError, match=r"in.txt, line 2: longer than 1,048,576 characters"):
        write(tmp_path / "in.txt", tmp_path / "out.h5")
    assert not (tmp_path / "out.h5.partial").exists()


# --- at the keyboard -------------------------------------------------------------------------


def command(toy, *words, devices=1):
    command = [sys.executable, "-m", "pretrain.embed", *map(str, words)]
    environment = toy.environment(devices) | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run(command, cwd=toys.ROOT, env=environment, capture_output=True, text=True)


def test_the_command_writes_the_file_on_any_devices_and_does_not_replace_it(
    run, toy, write, text, tmp_path
):
    write(text, tmp_path / "expected.h5", "mlm", layers="all", mix="1,0,-1")
    flags = f"--workdir={run('mlm').workdir}", "--mix=1,0,-1", text, tmp_path / "out.h5"
    done = command(toy, *flags, devices=4)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].startswith("9 sentences, 21 words: ")
    expected, found = (read(tmp_path / f"{name}.h5") for name in ("expected", "out"))
    assert found.keys() == expected.keys()
    for name, x in found.items():
        np.testing.assert_allclose(x, expected[name], rtol=1e-4, atol=1e-4)
    again = command(toy, *flags)
    assert again.returncode == 1
    assert "out.h5 is there already: take another name, or --overwrite" in again.stderr


def test_a_file_that_is_missing_on_the_command_line_is_asked_for(toy, tmp_path):
    done = command(toy, f"--workdir={tmp_path}", "in.txt")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: name two files: the text, and the file to write: in.txt out.h5"
    )
