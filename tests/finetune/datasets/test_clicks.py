"""Logs of searches become examples: what was clicked, and what was passed over above it."""

import pytest

from pretrain.runtime.errors import UserError
from tests.support import corpora
from tests.support.dataset_files import read_written

SHOWN = [("1", "a", 0), ("1", "b", 1), ("2", "e", 0), ("1", "c", 0), ("1", "d", 3), ("1", "f", 0)]
LOG = "search\tquery\ttitle\tcategory\tplace\tclicked\n" + "".join(
    f"{search}\tq{search}\t{title}\tx/{title}\t{-n}\t{clicked}\n"
    for n, (search, title, clicked) in enumerate(SHOWN)
)


def read(folder, content=LOG, **fields):
    return read_written(folder, "clicks", content, "log.tsv", **fields)


def titles(examples):
    return "".join(x["texts"][1] for x in examples), [x["label"] for x in examples]


def test_what_stands_above_the_last_click_was_passed_over(tmp_path):
    result = read(tmp_path)
    assert titles(result.examples) == ("abcd", ["0", "1", "0", "1"])
    assert result.examples[0]["texts"] == ["q1", "a", "x/a"]
    assert result.notes[0].startswith("left out: searches without a click: 1, the first at")
    assert titles(read(tmp_path, negatives="all").examples)[0] == "abcdf"


def test_places_order_what_was_shown(tmp_path):
    assert titles(read(tmp_path, position="place").examples) == ("fdcb", ["0", "1", "0", "1"])


def test_no_more_is_drawn_than_the_ratio_allows(tmp_path):
    rows = [f"1\tq\t{n}\tx\t0\t{int(n > 17)}\n" for n in range(20)]
    content = LOG.split("\n")[0] + "\n" + "".join(rows)
    drawn = [titles(read(tmp_path, content, ratio=4, seed=seed).examples) for seed in (0, 0, 1)]
    assert [labels.count("0") for _, labels in drawn] == [8] * 3
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_search_is_a_list_with_what_clicks_count(tmp_path):
    (example,) = read(tmp_path, lists=True).examples
    assert (example["query"], example["id"]) == ("q1", "1")
    assert example["candidates"] == ["a x/a", "b x/b", "c x/c", "d x/d"]
    assert example["relevance"] == [0, 1, 0, 3]


def test_a_list_has_its_scene_history_and_numbers(tmp_path):
    line = '{"probabilities": {"0": 0.5, "1": %s}}\n'
    (tmp_path / "scores.jsonl").write_text("".join(line % (n / 8) for n in range(6)))
    fields = dict(scene="place", history="category", scores=f"{tmp_path}/scores.jsonl")
    rows = [line.split("\t") for line in LOG.splitlines()]
    same = [row if n == 0 else [*row[:3], "i j", "home", row[5]] for n, row in enumerate(rows)]
    text = "".join("\t".join(row) + "\n" for row in same)
    (example,) = read(tmp_path, text, lists=True, features=("clicked",), **fields).examples
    assert (example["scene"], example["history"]) == ("home", ["i", "j"])
    assert example["features"] == [[0, 0], [1, 1 / 8], [0, 3 / 8], [3, 4 / 8]]


def test_a_corpus_of_clicks_ends_each_document_with_its_label(tmp_path):
    (tmp_path / "log.tsv").write_text(LOG)
    data = dict(format="clicks", path=f"{tmp_path}/log.tsv", with_label=True)
    corpus = corpora.load(
        "finetune.datasets.corpus",
        tmp_path / "cache",
        data=data,
        tokens=dict(name="words", split="blank"),
        sentences="line",
        held_out=0.0,
    )
    assert (corpus.manifest["documents"], corpus.manifest["sentences"]) == (4, 16)
    labels = [corpus.tokenizer.pieces[corpus.tokens[end - 2]] for end in corpus.documents[1:]]
    assert labels == ["0", "1", "0", "1"]


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        (LOG, dict(negatives="below"), "negatives='below' is none of skip_above, all"),
        (
            LOG.replace("q1\td", "q9\td"),
            dict(lists=True),
            r"search '1' was \('q1', '', ''\) before, not \('q9'",
        ),
        (LOG, dict(position="title"), "line 2: the label 'a' is not a number"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path, content, fields, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, content, **fields)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", r"should be an object with 'probabilities', and is \[1\]"),
        ('{"probabilities": {}}', "'probabilities' has no class"),
        ('{"value": "a"}', "the label 'a' is not a number"),
    ],
)
def test_a_line_that_is_no_prediction_is_named(tmp_path, line, message):
    lines = ['{"value": 1}', line, *['{"value": 1}'] * 4]
    (tmp_path / "scores.jsonl").write_text("\n".join(lines))
    with pytest.raises(UserError, match=rf"scores\.jsonl, line 2: {message}"):
        read(tmp_path, scores=f"{tmp_path}/scores.jsonl")
