"""What any system writes in any of its kinds, it reads back bit for bit."""

import pytest

from pretrain.checkpoint import integrity
from pretrain.conversion import exporter, importer
from pretrain.conversion.systems import Described
from pretrain.data.tokenizers import sentencepiece, wordpiece, words
from pretrain.inference import trained_run
from tests.support import array_mapping as cases
from tests.support import gpt_releases
from tests.support.bert_release import PIECES

TRANSFORMER = dict(name="transformer", D=16, H=2, K=8, N=2, F=64, L=12)
BERT = TRANSFORMER | dict(
    V=len(PIECES),
    attention="bi",
    norm="post",
    S=2,
    normed_embedding=True,
    head="transform",
    pooler=True,
    epsilon=1e-12,
)
XLNET = dict(name="two_stream", V=31, D=16, H=2, K=8, N=2, F=24, M=384, untied=True)
ELMO = dict(
    name="elmo",
    V=0,
    D=12,
    U=24,
    N=2,
    E=4,
    filters=((1, 4), (2, 8)),
    highways=2,
    W=10,
    clip_cell=3.0,
    clip_projection=3.0,
)


def bert():
    heads = {"next_DC": (16, 2), "next_bias_C": (2,)}
    return Described(
        BERT, dict(name="mlm", nsp=True), "bert", {}, wordpiece.Tokenizer(PIECES), heads
    )


def gpt(kind, **fields):
    tokens = gpt_releases.vocabulary(kind)
    model = TRANSFORMER | dict(V=tokens.V, attention="causal", **fields)
    return Described(model, dict(name="clm", across=False), "gpt", {}, tokens)


def xlnet():
    texts = ["abc cab bca abd", "dab bad cad ace", "bee deed add"] * 20
    return Described(
        XLNET, dict(name="plm"), "xlnet", {}, sentencepiece.Tokenizer.learn(iter(texts), V=31)
    )


def elmo():
    return Described(
        ELMO, dict(name="bilm"), "elmo", {}, words.Tokenizer(list(words.MARKS), "blank")
    )


SYSTEMS = {
    "BERT": (bert, ("npz", "hugging_face")),
    "GPT-1": (lambda: gpt("hugging_face_gpt1", norm="post"), ("hugging_face_gpt1",)),
    "GPT-2": (lambda: gpt("hugging_face", norm="pre"), ("npz", "hugging_face")),
    "XLNet": (xlnet, ("npz", "hugging_face")),
    "ELMo": (elmo, ("hdf5",)),
}
CASES = [(system, kind) for system, (_, kinds) in SYSTEMS.items() for kind in kinds]


@pytest.fixture(scope="module")
def workdirs(tmp_path_factory):
    """A run of each system with weights drawn at random."""
    made = {}
    for system, (described, _) in SYSTEMS.items():
        workdir, release = tmp_path_factory.mktemp(system), described()
        params = cases.randomly(cases.shapes(release.model) | release.heads)
        cases.run(release, params, workdir)
        made[system] = workdir
    return made


def quiet(*_):
    pass


def leaves(workdir):
    return integrity.read_record(workdir / "checkpoints" / "0")["leaves"]


@pytest.mark.parametrize(("system", "kind"), CASES)
def test_out_in_and_out_again_is_the_same(workdirs, tmp_path, system, kind):
    workdir = workdirs[system]
    exporter.hand_out(workdir, tmp_path / "out", quiet, kind=kind)
    importer.bring(tmp_path / "out", tmp_path / "run", quiet)
    assert leaves(tmp_path / "run") == leaves(workdir)
    one, other = (trained_run.opened(each) for each in (workdir, tmp_path / "run"))
    assert other.tokenizer.pieces == one.tokenizer.pieces
    for field, value in one.config.model.items():
        assert other.config.model[field] == value, field
    exporter.hand_out(tmp_path / "run", tmp_path / "again", quiet, kind=kind)
    files = [{x.name: x.read_bytes() for x in (tmp_path / y).iterdir()} for y in ("out", "again")]
    for file in files:  # which hold the times of writing
        file.pop("weights.hdf5", None)
        file.pop("model.npz", None)
    assert files[0] == files[1]


def test_a_system_writes_hugging_face_s_kind_unless_asked_otherwise(workdirs, tmp_path):
    exporter.hand_out(workdirs["GPT-1"], tmp_path / "out", quiet)
    assert (tmp_path / "out" / "model.safetensors").exists()
    exporter.hand_out(workdirs["ELMo"], tmp_path / "elmo", quiet)
    assert (tmp_path / "elmo" / "weights.hdf5").exists()
