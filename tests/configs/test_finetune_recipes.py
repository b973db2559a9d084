"""configs/finetune: every recipe and preset builds its job from files as their owners give them."""

import gzip
import importlib
import json
import pathlib

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs.finetune import table as table_recipe
from configs.finetune import textrnn
from finetune import job as jobs
from finetune.several import parts
from modules.layers.params import recording
from pretrain.data.batches import name_arrays, split_tasks
from pretrain.data.tokenizers import wordpiece
from pretrain.distributed.sharding import AXES
from pretrain.training import optimizer
from pretrain.training.train_config import TrainConfig
from tests.support.bert_release import PIECES
from tests.support.presets import presets
from tests.support.tiny_jobs import TRANSFORMER

HERE = pathlib.Path(__file__).parents[2] / "configs" / "finetune"
# "author" has a corpus for its file, and "distil" a teacher.
ELSEWHERE = {"__init__", "common", "author", "distil"}
RECIPES = sorted({path.stem for path in HERE.glob("*.py")} - ELSEWHERE)
LSTM = dict(name="elmo", inputs="words", V=None, D=8, U=12, N=1)
AWD_LSTM = dict(name="awd_lstm", V=None, D=8, U=12, N=1)


CASES = [(recipe, preset) for recipe in RECIPES for preset in presets(f"configs.finetune.{recipe}")]


# --- files as their owners give them, by the names that the recipes have ------------------------


def alike(content, *names):
    return dict.fromkeys(names, content)


def lines(*records):
    return "".join(f"{record}\n" for record in records)


def table(*rows):
    return lines(*("\t".join(row) for row in rows))


def asked(*qas):
    paragraph = {"context": "a cab is here. bad cabs are there.", "qas": list(qas)}
    return json.dumps({"data": [{"title": "cabs", "paragraphs": [paragraph]}]})


ANSWERS = {"id": "1", "question": "is a cab here?", "answers": [{"text": "cab", "answer_start": 2}]}
NO_ANSWER = {"id": "2", "question": "is it?", "answers": [], "is_impossible": True}
CHOICE = {"query": "a cab came, so", "choices": ["it is here.", "it is bad."], "gold": 0}
EXAM = {
    "article": "a cab came.",
    "questions": ["a _ came.", "is it here?"],
    "options": [["cab", "dog", "bee", "cat"]] * 2,
    "answers": ["A", "B"],
}
NEWS = lines(
    "-DOCSTART- -X- O O", "", "EU NNP I-NP I-ORG", "came VBD I-VP O", "", "EU NNP I-NP I-ORG"
)
CHUNKS = lines("EU NNP B-NP", "came VBD B-VP", "", "it PRP B-NP", "", "so RB O", "")
TWEETS = "Ada\tB-person\nhere\tO\n\nno\tO\n"
FILMS = lines("1 a good film", "0 a bad film , dear me", "1 good")
QUESTIONS = "NUM:date When ?\nHUM:ind Who is Zo\xe9 ?\nHUM:gr Who are they ?\n"
SOUGHT = [
    dict(query=f"cab{n}", title=title, label=label, query_tags="B-X I-X I-X O", title_tags=tags)
    for n in range(9)
    for title, label, tags in ((f"a dog{n}", "2", "O B-X I-X I-X O"), ("it", "0", "O O"))
]
SOUGHT_LINES = lines(*map(json.dumps, SOUGHT))
SHOWN = [
    dict(search=n, query="cab", title=f"dog {i}", clicked=i, price=n, distance=0.5 * i)
    | dict(scene="ab"[n % 2], history="x y")
    for n in range(9)
    for i in range(2)
]
TITLES = lines("a O", "c B-HPPX", "b I-HPPX", "", "d B-HCCX")
SIMILAR = 'A cab is here.,"A cab, here.",4.8\nA dog.,A bee.,0.25\nA dog.,A cab.,1.5\n'
IMPLIED = (
    'premise,hypothesis,label\n"A cab, here.",A cab.,entailment\nA dog.,Bees.,not_entailment\n'
)
TRIPLES = "sent0,sent1,hard_neg\nA cab is here.,A cab.,A dog.\nA bee.,Bees.,A cab.\n"
RANKED = table(("a cab", "a cab is here", "1"), ("a cab", "a dog", "0"), ("dogs", "a dog", "1"))
RELATED = lines(
    '1\t"The <e1>kitchen</e1> is part of the <e2>house</e2>."',
    "Component-Whole(e1,e2)",
    "Comment:",
    "",
    '2\t"The <e1>dog</e1> saw a <e2>cab</e2>."',
    "Other",
    "Comment: none",
    "",
    '3\t"The <e1>car</e1> has <e2>doors</e2>."',
    "Component-Whole(e2,e1)",
    "Comment:",
)


def glue(folder, header, *rows, parts=("train", "dev")):
    named = table(*([header] if header else []), *rows)
    return alike(named, *(f"glue_data/{folder}/{part}.tsv" for part in parts))


def pairs(folder, *labels, header=("index", "sentence1", "sentence2", "label"), **more):
    rows = [(str(n), "a cab", "it is here", label) for n, label in enumerate(labels)]
    return glue(folder, header, *rows, **more)


# Words' vectors, of which some are of the examples' words.
WORDS = ("a", "is", "film", "good", "the", "cab", "who", "when", "eu", "here")
GLOVE = "".join(f"{word} 0.5 -1.25\n" for word in WORDS)
WORD2VEC = f"{len(WORDS)} 2\n" + "".join(f"{word} \0\0\0\0\0\0\0\0" for word in WORDS)
SPOKEN = "BOS play a film EOS\tO O O B-film PlayFilm\nBOS is it here EOS\tO O O O Ask\n"
REVIEWS = "".join(f"{n % 2} a {'good' if n % 2 else 'bad'} film {n}\n" for n in range(20))
TREES = "(4 (2 a) (3 (4 good) (2 film)))\n(1 (2 it) (0 bored))\n(2 (2 a) (2 film))\n"
TABBED = lines(*(line.replace(" ", "\t", 1) for line in REVIEWS.splitlines()))
PACKED = gzip.compress(TABBED.encode()).decode("latin-1")
TREE_FILES = alike(TREES, *(f"trees/{part}.txt" for part in parts.SPLITS))
VECTORS = {"GoogleNews-vectors-negative300.bin": WORD2VEC} | alike(
    GLOVE, "glove.6B.50d.txt", "glove.6B.100d.txt"
)


SIMILARITY = {
    x: alike(SIMILAR, *(f"stsb-{x}-{part}.csv" for part in parts.SPLITS)) for x in ("en", "zh")
}
TWO_WAY = ("entailment", "not_entailment")
FILES = {
    "conll2003": alike(NEWS, "eng.train", "eng.testa", "eng.testb"),
    "consert": SIMILARITY["en"] | SIMILARITY["zh"] | {"nli.csv": IMPLIED},
    "copa": alike(lines(json.dumps(CHOICE)), "copa/train.jsonl", "copa/dev.jsonl"),
    "glue:cola": glue("CoLA", None, ("gj04", "1", "", "a cab came"), ("gj04", "0", "*", "cab a")),
    "glue:sst2": glue("SST-2", ("sentence", "label"), ("a good film ", "1"), ("a bad one ", "0")),
    "glue:mrpc": glue(
        "MRPC",
        ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
        ("1", "7", "8", '"A cab" came', "A cab."),
        ("0", "7", "9", "A cab.", "A dog."),
    ),
    "glue:stsb": pairs(
        "STS-B", "5.000", "0.800", "2.5", header=("index", "sentence1", "sentence2", "score")
    ),
    "glue:qqp": pairs("QQP", "0", "1", header=("id", "question1", "question2", "is_duplicate")),
    "glue:mnli": pairs(
        "MNLI",
        "entailment",
        "neutral",
        "contradiction",
        header=("index", "sentence1", "sentence2", "gold_label"),
        parts=("train", "dev_matched", "dev_mismatched"),
    ),
    "glue:qnli": pairs("QNLI", *TWO_WAY, header=("index", "question", "sentence", "label")),
    "glue:rte": pairs("RTE", *TWO_WAY),
    "glue:wnli": pairs("WNLI", "0", "1"),
    "race": alike(json.dumps(EXAM), *(f"RACE/{part}/high/1.txt" for part in parts.SPLITS)),
    "rank": alike(RANKED, "train.tsv", "dev.tsv"),
    "rte": alike(IMPLIED, "train.csv", "dev.csv"),
    "recurrent": VECTORS | alike(RELATED * 4, "TRAIN_FILE.TXT", "TEST_FILE_FULL.TXT"),
    "search:rows": alike(SOUGHT_LINES, "train.jsonl"),
    **dict.fromkeys(
        ("search:scenes", "search:numbers"),
        alike(lines(*map(json.dumps, SHOWN)), "log.jsonl"),
    ),
    **dict.fromkeys(
        (
            *("search:relevance", "search:relevance.scratch", "search:joint"),
            *("search:joint.scratch", "search:pointwise", "search:ranknet", "search:lambda"),
        ),
        alike(SOUGHT_LINES, "dev.json", "test_public.json")
        | alike(TITLES, *(f"{part}.txt" for part in parts.SPLITS)),
    ),
    "semeval2010:att_blstm": VECTORS | alike(RELATED * 4, "TRAIN_FILE.TXT", "TEST_FILE_FULL.TXT"),
    "semeval2010:tuned": alike(RELATED, "TRAIN_FILE.TXT", "TEST_FILE_FULL.TXT"),
    "snips": VECTORS | alike(SPOKEN * 2, *(f"snips_{part}.iob" for part in parts.SPLITS)),
    "squad": alike(asked(ANSWERS), "train-v1.1.json", "dev-v1.1.json"),
    "squad2": alike(asked(ANSWERS, NO_ANSWER), "train-v2.0.json", "dev-v2.0.json"),
    "simcse": SIMILARITY["en"]
    | {"nli_for_simcse.csv": TRIPLES, "wiki1m_for_simcse.txt": "A cab.\nIt is here.\n"},
    "sst2": alike(FILMS, *(f"stsa.binary.{part}" for part in parts.SPLITS)),
    "stsb": SIMILARITY["en"],
    "taglm": VECTORS
    | alike(NEWS * 4, "eng.train", "eng.testa", "eng.testb")
    | alike(CHUNKS * 4, "conll2000/train.txt", "conll2000/test.txt")
    | alike(TWEETS, "wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
    "table:classify": alike("text,label\n" + "a film,good\nthe cab,bad\n" * 9, "train.csv"),
    "table:regress": alike("text,label\n" + "a film,1.5\nthe cab,-2\n" * 9, "train.csv"),
    "textcnn": VECTORS
    | TREE_FILES
    | alike(REVIEWS, "rt-polarity.all", "subj.all")
    | alike(QUESTIONS * 4, "TREC.train", "TREC.test"),
    "textrcnn": VECTORS | TREE_FILES,
    "textrnn": VECTORS
    | TREE_FILES
    | alike(REVIEWS, "subj.all")
    | alike(PACKED, *(f"{x}.{part}.gz" for x in textrnn.DOMAINS for part in ("train", "test"))),
    "trec": alike(QUESTIONS, "TREC.train", "TREC.test"),
    "ulmfit": alike(QUESTIONS, "TREC.train", "TREC.test")
    | alike('"1","a","good film"\n"2","a bad","one"\n', "train.csv", "test.csv")
    | alike(PACKED, "imdb.train.gz", "imdb.test.gz"),
    "wnut17": alike(TWEETS, "wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
    "xquad": alike(asked(ANSWERS), "train-v1.1.json", "dev-v1.1.json", "xquad.en.json"),
}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """(name, preset) -> the recipe, run where its files are; with a small model if it has none."""
    monkeypatch.chdir(tmp_path)
    wordpiece.write_vocabulary(PIECES, tmp_path / "vocab.txt")

    def make(name, preset):
        for path, content in (FILES.get(name) or FILES[f"{name}:{preset}"]).items():
            pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
            pathlib.Path(path).write_bytes(content.encode("latin-1"))
        get_config = importlib.import_module(f"configs.finetune.{name}").get_config
        config = get_config(preset) if preset else get_config()
        if preset == "elmo":
            config.text_format, config.tokens = "elmo", ConfigDict(dict(name="words"))
            config.model = ConfigDict(LSTM)
        elif name == "ulmfit":  # of whose model the recipe says what differs
            config.tokens = ConfigDict(dict(name="words"))
            config.model = ConfigDict({**config.model.to_dict(), **AWD_LSTM})
        elif config.tokens.get("model"):  # a published vocabulary
            config.tokens.V = len(PIECES)
        elif not config.tokens and not preset.endswith(".none"):  # which has no backbone
            own = dict(name="wordpiece", model="vocab.txt", V=len(PIECES))
            config.text_format, config.tokens = "bert", ConfigDict(own)
            config.model = ConfigDict({**TRANSFORMER, **config.model.to_dict()})
        return config

    return make


def quiet(*_):
    pass


# Below a task: what has more than one dimension and is a bias all the same, or a task's own scores.
SPARED = {"bh_ZU", "bh_ZGU", "end_ZU", "fixed_VD", "b_ZGU", "bq_HK", "bk_HK", "bv_HK"}
SPARED |= {"bias_SF", "transition_CC", "w_N", "carry_X", "transform_X", "peep_GU"}


def described(task, batch):
    """(the parameters' shapes, the metrics, what the parameters say of themselves)."""
    rngs = dict.fromkeys(("params", "dropout"), jax.random.key(0))
    with recording() as record:
        sums, shapes = jax.eval_shape(lambda: task.init_with_output(rngs, batch, train=True))
    return shapes, sums, record.infos(shapes["params"])


def told(made, shapes, split, data):
    """What the task's metrics say of outputs that are 0, but for what they have of the batch."""
    batch = data.arrays | {"weight_B": np.ones(data.size, np.float32)}
    named = name_arrays(data.task, batch)
    outputs = jax.eval_shape(lambda p: made.task.apply(p, named, method="predict"), shapes)
    zeros = {
        name: batch.get(name.rpartition(".")[2], np.zeros(x.shape, x.dtype))
        for name, x in outputs.items()
    }
    return made.score(split, zeros)


@pytest.mark.parametrize(("name", "preset"), CASES)
def test_a_preset_s_job_has_its_metric_and_decays_matrices_alone(recipe, name, preset):
    config = recipe(name, preset)
    made = jobs.build_job(config, quiet)
    batch = {name: np.zeros(x.shape, x.dtype) for name, x in made.train.shapes().items()}
    assert {len(x["weight_B"]) for x in split_tasks(batch).values()} == {config.batches.B}
    assert made.evals
    shapes, sums, infos = described(made.task, batch)
    metrics = {}
    for split, data in made.evals.items():
        scores = {**dict.fromkeys(sums, 0.0), **told(made, shapes, split, data)}
        metrics |= {f"{split}/{name}": x for name, x in scores.items()}
    plan = TrainConfig(**config.train)
    metrics |= {f"mean/{k}": sum(metrics[x] for x in names) for k, names in plan.means.items()}
    assert config.train.best.removeprefix("-") in ("", *metrics)
    assert all(-1 <= x <= 100 for x in metrics.values())
    assert set(config.mesh) == set(AXES)
    _, rate = optimizer.make(**config.optim)
    assert rate(0) <= config.optim.lr
    leaves = jax.tree.leaves(shapes["params"])
    for (path, info), x in zip(jax.tree_util.tree_leaves_with_path(infos), leaves, strict=True):
        one = x.ndim - isinstance(info.layers_above, tuple)
        assert info.decay == (one > 1 and path[-1].key not in SPARED), path


def test_every_recipe_has_its_files_here():
    assert {name.split(":")[0] for name in FILES} == set(RECIPES)


def test_mnli_is_judged_on_both_its_development_sets(recipe):
    made = jobs.build_job(recipe("glue", "mnli"), quiet)
    places = {split: made.only.examples[split][0]["where"] for split in made.evals}
    assert places == {
        "dev": "glue_data/MNLI/dev_matched.tsv, line 2",
        "test": "glue_data/MNLI/dev_mismatched.tsv, line 2",
    }


@pytest.mark.parametrize("task", ["mrpc", "qqp"])
def test_f1_is_that_of_the_pairs_that_say_the_same(recipe, task):
    made = jobs.build_job(recipe("glue", task), quiet)
    same = [x["label"] for x in made.only.examples["dev"]].index("1")
    all_same = {"logits_BC": np.tile([0.0, 1.0], (2, 1)).astype(np.float32)}
    assert made.only.data.labels.index(made.only.examples["dev"][same]["label"]) == 1
    assert made.score("dev", all_same) == pytest.approx({"accuracy": 1 / 2, "f1": 2 / 3})


def test_a_question_s_class_is_what_stands_before_the_colon_and_all_of_it_without_one(recipe):
    config = recipe("trec", "tuned")
    assert jobs.build_job(config, quiet).only.data.labels == ["HUM", "NUM"]
    config.data.until = ""
    assert jobs.build_job(config, quiet).only.data.labels == ["HUM:gr", "HUM:ind", "NUM:date"]


def test_marked_words_stand_between_signs_and_a_wrong_direction_is_wrong(recipe):
    made = jobs.build_job(recipe("semeval2010", "tuned"), quiet)
    examples, scores = made.only.examples["test"], []
    assert examples[0]["texts"] == ["The $ kitchen $ is part of the # house #."]
    there, other, back = (made.only.data.labels.index(x["label"]) for x in examples)
    for answers in ([there, other, back], [back, other, there], [there, other, other]):
        logits_BC = np.eye(len(made.only.data.labels), dtype=np.float32)[answers]
        scores.append(made.score("test", {"logits_BC": logits_BC})["relation_f1"])
    assert scores == pytest.approx([1, 0, 2 / 3])  # one of two found, and none wrongly


def test_a_value_that_is_set_in_one_recipe_is_unset_in_the_next():
    table_recipe.get_config().task.head.pool = "max"
    assert table_recipe.get_config("regress").task.head.pool is None
