"""Every system of the folder keeps the contract: what it writes, it reads back bit for bit."""

import json

import pytest

from pretrain.conversion import exporter, importer, systems
from pretrain.conversion.systems import ReleaseSpec
from pretrain.data.tokenizers import wordpiece, words
from pretrain.inference import trained_run
from pretrain.runtime.errors import UserError
from tests.support import array_mapping as cases
from tests.support import gpt_releases, tokenizer_data, transformer_inputs, tuned_runs
from tests.support.bert_release import PIECES, leaves

TRANSFORMER = dict(name="transformer", D=16, H=2, K=8, N=2, F=64, L=12)
BERT = TRANSFORMER | transformer_inputs.BERT | dict(V=len(PIECES))
XLNET = dict(name="two_stream", V=31, D=16, H=2, K=8, N=2, F=24, M=384, untie_r=True)
ELMO = dict(name="elmo", V=0, D=12, U=24, N=2, clip_cell=3.0, clip_projection=3.0)
ELMO |= dict(E=4, filters=((1, 4), (2, 8)), highways=2, W=10)


def bert():
    heads, head = {"next_DC": (16, 2), "next_bias_C": (2,)}, transformer_inputs.BERT_HEAD
    objective, tokens = dict(name="mlm", nsp=True), wordpiece.Tokenizer(PIECES)
    return ReleaseSpec(BERT, objective, "bert", {}, tokens, heads, head=head)


def distilbert():
    tokens, head = wordpiece.Tokenizer(PIECES), transformer_inputs.BERT_HEAD
    model = BERT | dict(S=0, pooler=False)
    return ReleaseSpec(model, dict(name="mlm", nsp=False), "bert", {}, tokens, head=head)


def electra():
    head = transformer_inputs.BERT_HEAD | dict(activation="gelu_erf")
    model = BERT | dict(embedding_size=8, pooler=False)
    tokens = wordpiece.Tokenizer(PIECES)
    return ReleaseSpec(model, dict(name="mlm", nsp=False), "bert", {}, tokens, head=head)


def roberta():
    tokens = tuned_runs.build_tokenizer("roberta")
    model = BERT | dict(V=tokens.V, S=1, pooler=False)
    head = transformer_inputs.BERT_HEAD | dict(activation="gelu_erf")
    return ReleaseSpec(model, dict(name="mlm", nsp=False), "roberta", {}, tokens, head=head)


def gpt(kind, **fields):
    tokens = gpt_releases.vocabulary(kind)
    model = TRANSFORMER | dict(V=tokens.V, attention="causal", **fields)
    return ReleaseSpec(model, dict(name="clm", attend_across_documents=False), "gpt", {}, tokens)


def xlnet():
    tokens = tokenizer_data.unigram()
    return ReleaseSpec(XLNET, dict(name="plm"), "xlnet", {}, tokens, head=dict(bias=True))


def elmo():
    tokens, head = words.Tokenizer(list(words.MARKS), "blank"), dict(tied=False, bias=True)
    return ReleaseSpec(ELMO, dict(name="bilm"), "elmo", {}, tokens, head=head)


def awd_lstm():
    marks = ("xxbos", "xxbos", "xxunk")
    return ReleaseSpec(
        dict(name="awd_lstm", V=7, D=4, U=5, N=2),
        dict(name="clm", stateful=True, attend_across_documents=True),
        "ulmfit",
        {},
        words.Tokenizer(["xxunk", "xxbos", *"abcde"], "blank", marks=marks),
        head=dict(tied=True, bias=True),
    )


SYSTEMS = {
    "BERT": (bert, ("npz", "hugging_face")),
    "DistilBERT": (distilbert, ("hugging_face",)),
    "ELECTRA": (electra, ("hugging_face",)),
    "RoBERTa": (roberta, ("hugging_face",)),
    "GPT-1": (lambda: gpt("hugging_face_gpt1", norm="post"), ("hugging_face_gpt1",)),
    "GPT-2": (lambda: gpt("hugging_face", norm="pre"), ("npz", "hugging_face")),
    "XLNet": (xlnet, ("npz", "hugging_face")),
    "ELMo": (elmo, ("hdf5",)),
    "AWD-LSTM": (awd_lstm, ("salesforce", "fastai")),
}
NAMES = {
    "BERT": "bert",
    "DistilBERT": "distilbert",
    "ELECTRA": "electra",
    "RoBERTa": "roberta",
    "GPT-1": "gpt",
    "GPT-2": "gpt",
    "XLNet": "xlnet",
    "ELMo": "elmo",
    "AWD-LSTM": "awd_lstm",
}
CASES = [(system, kind) for system, (_, kinds) in SYSTEMS.items() for kind in kinds]


@pytest.fixture(scope="module")
def workdirs(tmp_path_factory):
    """A run of each system with weights drawn at random."""
    made = {}
    for system, (described, _) in SYSTEMS.items():
        workdir, release = tmp_path_factory.mktemp(system), described()
        params = cases.randomly(cases.shapes(release.model, release.head) | release.heads)
        cases.run(release, params, workdir)
        made[system] = workdir
    return made


@pytest.mark.parametrize(("system", "kind"), CASES)
def test_out_in_and_out_again_is_the_same(workdirs, tmp_path, system, kind):
    workdir = workdirs[system]
    exporter.export_weights(workdir, tmp_path / "out", print, kind=kind)
    importer.import_weights(tmp_path / "out", tmp_path / "run", print)
    assert leaves(tmp_path / "run") == leaves(workdir)
    one, other = (trained_run.load_run(each) for each in (workdir, tmp_path / "run"))
    assert other.tokenizer.pieces == one.tokenizer.pieces
    for field, value in one.config.model.items():
        assert other.config.model[field] == value, field
    exporter.export_weights(tmp_path / "run", tmp_path / "again", print, kind=kind)
    files = [{x.name: x.read_bytes() for x in (tmp_path / y).iterdir()} for y in ("out", "again")]
    for file in files:
        for name in ("weights.hdf5", "model.npz"):  # which hold the times of writing
            file.pop(name, None)
        file.pop("README.md")  # which says where the run came from
    assert files[0] == files[1]


def test_every_system_of_the_folder_is_tested():
    kinds = {
        (k, n) for k, x in systems.list_systems().items() for n in x.KINDS if x.KINDS[n].writable
    }
    assert {(NAMES[system], kind) for system, kind in CASES} == kinds


def test_the_default_is_hugging_face_s_kind_or_the_only_one(workdirs, tmp_path):
    exporter.export_weights(workdirs["GPT-1"], tmp_path / "out", print)
    assert (tmp_path / "out" / "model.safetensors").exists()
    exporter.export_weights(workdirs["ELMo"], tmp_path / "elmo", print)
    assert (tmp_path / "elmo" / "weights.hdf5").exists()


OWN = """
from pretrain.conversion.systems import bert
from pretrain.conversion.systems.bert import *

def write_config_and_tokenizer(run, folder, kind, dtype):
    bert.write_config_and_tokenizer(run, folder, kind, dtype)
    (folder / "own.txt").write_text("mine")
"""


def test_a_system_of_the_user_s_own_is_named_once(workdirs, tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "release.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    out, own = tmp_path / "out", "own.release"
    exporter.export_weights(workdirs["BERT"], out, print, system=own)
    importer.import_weights(out, tmp_path / "run", print, system=own)
    assert json.loads((tmp_path / "run" / "origin.json").read_text())["system"] == own
    exporter.export_weights(tmp_path / "run", tmp_path / "again", print)
    assert (tmp_path / "again" / "own.txt").exists()


def test_of_two_systems_that_fit_one_is_to_be_named(workdirs, tmp_path, monkeypatch):
    two = dict.fromkeys(("bert", "roberta"), systems.load_system("bert"))
    exporter.export_weights(workdirs["BERT"], tmp_path / "out", print)
    monkeypatch.setattr(systems, "list_systems", lambda name="": {name: two[name]} if name else two)
    for refused in (
        lambda: exporter.export_weights(workdirs["BERT"], tmp_path / "other", print),
        lambda: importer.import_weights(tmp_path / "out", tmp_path / "run", print),
    ):
        with pytest.raises(UserError, match=r"bert, roberta|--system: bert, roberta"):
            refused()
    importer.import_weights(tmp_path / "out", tmp_path / "run", print, system="bert")
    exporter.export_weights(tmp_path / "run", tmp_path / "other", print)


def test_a_system_that_is_not_there_is_refused_with_those_that_are(workdirs, tmp_path):
    with pytest.raises(UserError, match=r"--system: .* has awd_lstm, bert, distilbert, electra,"):
        exporter.export_weights(workdirs["BERT"], tmp_path / "out", print, system="bert_tokenizer")
