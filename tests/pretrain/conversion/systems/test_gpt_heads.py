"""Fine-tuned GPTs leave as the classes of transformers that compute their heads."""

import numpy as np
import pytest

from pretrain.conversion.systems import gpt
from pretrain.inference.trained_run import load_run
from pretrain.runtime.json_files import read_json, update_json
from tests.support import tokenizer_peer
from tests.support import tuned_runs as cases
from tests.support.bert_release import import_release

CLASSES = {
    ("gpt2", "bare"): "GPT2ForSequenceClassification",
    ("gpt2", "tag"): "GPT2ForTokenClassification",
    ("gpt2", "span"): "GPT2ForQuestionAnswering",
    ("gpt1", "bare"): "OpenAIGPTForSequenceClassification",
}
PAIRS = [("a b c", "b c"), ("bad ace", "b c"), ("d e", "<start> d"), ("", "e")]


@pytest.fixture(params=CLASSES, ids="-".join)
def exported(request, tmp_path):
    """The class, the run as it was opened, and the folder of its export."""
    system, task = request.param
    tuned, *_ = cases.write_run(system, task, tmp_path / "run")
    cases.export(tmp_path / "run", tmp_path / "out")
    return CLASSES[request.param], tuned, tmp_path / "out"


def frame(tuned, texts):
    """The ids of a row of these texts, as the task frames them."""
    inputs = tuned.data.inputs
    return inputs.row(inputs.tokens(texts)).ids.tolist()


def test_the_configuration_names_the_class_and_the_padding_behind_a_row(exported):
    name, tuned, folder = exported
    config = read_json(folder / "config.json")
    eod = tuned.run.tokenizer.special["eod"]
    assert config["architectures"] == [name]
    assert (config["pad_token_id"], config["vocab_size"]) == (eod, tuned.run.tokenizer.V + 3)
    if not name.endswith("QuestionAnswering"):
        assert len(config["id2label"]) == 3


def test_transformers_frames_rows_as_the_task_does(exported):
    _, tuned, folder = exported
    firsts, seconds = zip(*PAIRS, strict=True)
    alone, pairs = ([frame(tuned, x) for x in rows] for rows in ([[x] for x in firsts], PAIRS))
    assert tokenizer_peer.encode(folder, firsts) == alone
    assert tokenizer_peer.encode(folder, firsts, text_pair=seconds) == pairs


def test_the_backbone_comes_back_with_its_marks_as_pieces(exported, tmp_path):
    name, tuned, folder = exported
    part = {"Tok": "classifier", "Que": "qa_outputs"}.get(name.removeprefix("GPT2For")[:3], "score")
    assert f"--ignore='({part}).*'" in (folder / "README.md").read_text()
    import_release(folder, tmp_path / "again", ignore=f"({part}).*")
    again = load_run(tmp_path / "again")
    assert again.backbone.V == tuned.run.backbone.V == again.tokenizer.V
    assert again.tokenizer.pieces[-3:] == ["<start>", "<delimiter>", "<extract>"]
    (ids,) = again.tokenizer.encode(["bad <start> ace"])
    np.testing.assert_array_equal(ids, tuned.run.tokenizer.encode(["bad <start> ace"])[0])


@pytest.mark.parametrize(
    ("system", "task", "reason"),
    [
        ("gpt2", "classify", "GPT2ForSequenceClassification has no bias: fine-tune with task.head"),
        ("gpt1", "classify", "OpenAIGPTForSequenceClassification has no bias: fine-tune with"),
        ("gpt1", "tag", "transformers has no class with a head of task.name='tags'"),
    ],
)
def test_a_head_without_a_class_stays_and_the_backbone_goes(system, task, reason, tmp_path):
    cases.write_run(system, task, tmp_path / "run")
    lines = cases.export(tmp_path / "run", tmp_path / "out")
    assert reason in lines[0]
    import_release(tmp_path / "out", tmp_path / "again")


def test_a_mean_over_a_row_is_no_class_s(tmp_path):
    cases.write_run("gpt2", "bare", tmp_path / "run")
    update_json(tmp_path / "run" / "task.json", head=dict(bias=False, pool="mean"))
    first, *_ = cases.export(tmp_path / "run", tmp_path / "out")
    assert "has pool='last', and this run task.head.pool='mean'" in first


def test_a_number_has_its_class_too():
    assert gpt.HEADS["number"] == gpt.HEADS["class"]
