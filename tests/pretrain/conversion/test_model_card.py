"""A card says what a run's folder does: data, numbers, origin, licence, command, recipe."""

import json

import pytest

from pretrain.conversion import model_card
from pretrain.conversion.model_card import Facts
from pretrain.conversion.systems import ORIGIN
from pretrain.inference.trained_run import load_run
from pretrain.runtime import run_config
from pretrain.training.reports.metrics_file import Writer

FACTS = Facts("mine", "hugging_face", "bert", 1234, "float32")


@pytest.fixture
def seeds(run, tmp_path):
    """Two runs of seeds, as an import has begun them."""
    config = json.loads((run / "config.json").read_text())
    config["corpus"] = {"source": "text:a.txt", "held_out": 0.2}
    for seed, loss in enumerate((2.0, 3.0)):
        folder = tmp_path / "job" / f"seed-{seed}"
        folder.mkdir(parents=True)
        run_config.write_config(folder, {**config, "seed": seed})
        (folder / "tokenizer").symlink_to(run / "tokenizer")
        writer = Writer(folder, 0)
        writer.write(4, **{"held_out/loss": loss})
        writer.close()
    origin = dict(system="gpt", kind="hugging_face", address="org/base@12", license="mit")
    (tmp_path / "job" / "seed-0" / ORIGIN).write_text(json.dumps({**origin, "files": {"a": "ff"}}))
    (tmp_path / "job" / "seed-0" / run_config.COMMAND).write_text("python -m pretrain.main\n")
    return [load_run(tmp_path / "job" / f"seed-{seed}") for seed in (0, 1)]


def test_a_card_says_what_the_folder_of_the_run_does(seeds, tmp_path):
    model_card.write_card(seeds[0], tmp_path, FACTS)
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\nlicense: mit\nlibrary_name: transformers\nbase_model: org/base\n")
    for line in (
        "| held_out/loss | 2.0000 (2.5000 ± 0.7071 of 2 runs) |",
        "Began with the weights of `org/base@12` (gpt, hugging_face).",
        "- `a`: sha256 `ff`",
        "    python -m pretrain.main",
        "    seed=0",
        '    objective.name="mlm"',
    ):
        assert f"\n{line}\n" in card
    assert "Text: `text:a.txt`, of which 20.0% is held out." in card
    assert model_card.read_license(tmp_path) == "mit"
    (seeds[1].workdir / "metrics.jsonl").unlink()  # the other seed was not evaluated yet
    model_card.write_card(seeds[0], tmp_path, FACTS)
    assert "\n| held_out/loss | 2.0000 |\n" in (tmp_path / "README.md").read_text()


def test_a_card_says_which_run_came_before_or_its_import(seeds, tmp_path):
    imported, other = (seed.workdir for seed in seeds)
    later = tmp_path / "later"
    run_config.write_config(later, {**run_config.read_config(other), "init": str(other)})
    (later / "tokenizer").symlink_to(other / "tokenizer")
    run = load_run(later)
    assert model_card.find_origin(run) == {"folder": "seed-1"}
    model_card.write_card(run, tmp_path, FACTS)
    card = (tmp_path / "README.md").read_text()
    assert "\nBegan with the weights of the run `seed-1`.\n" in card
    run_config.write_config(other, {**run_config.read_config(other), "init": str(imported)})
    assert model_card.find_origin(run)["address"] == "org/base@12"
    run_config.write_config(later, {**run_config.read_config(later), "random_init": True})
    assert model_card.find_origin(load_run(later)) == {}


def test_a_card_says_how_much_there_was_to_train_on(seeds, tmp_path):
    workdir = seeds[0].workdir
    counts = dict(documents=240, words=1_900_000, tokens=2_345_678, held_out=12)
    (workdir / run_config.DATA).write_text(json.dumps(counts))
    model_card.write_card(seeds[0], tmp_path, FACTS)
    card = (tmp_path / "README.md").read_text()
    assert (
        "It has 2,345,678 tokens, 1,900,000 words, 240 documents; 12 documents are held out.\n"
    ) in card
    config = json.loads((workdir / "config.json").read_text())
    del config["corpus"], config["objective"]
    run_config.write_config(workdir, config | {"data": {"train": "a.csv"}})
    (workdir / run_config.DATA).write_text('{"examples": {"train": 1234, "dev": 20}}')
    model_card.write_card(load_run(workdir), tmp_path, FACTS)
    card = (tmp_path / "README.md").read_text()
    assert "Files: train: `a.csv`.\nExamples: train 1,234, dev 20.\n" in card


def test_a_card_claims_nothing_that_is_not_known(seeds, tmp_path):
    model_card.write_card(seeds[1], tmp_path, FACTS._replace(model_type="", kind="npz"))
    card = (tmp_path / "README.md").read_text()
    assert "license:" not in card
    assert "Trained from random weights." in card
    assert "## Command" not in card
    assert f"## Licence\n\n{model_card.UNKNOWN}\n" in card
    assert model_card.read_license(tmp_path) == ""
    (tmp_path / "README.md").write_text("---\nlanguage: en\n---\nlicense: mit\n")
    assert model_card.read_license(tmp_path) == ""


def test_a_card_tells_no_paths_of_the_machine(seeds, tmp_path):
    workdir = seeds[0].workdir
    config = json.loads((workdir / "config.json").read_text())
    config["corpus"] |= {"source": "text:/home/ann/x/*.txt", "tokens": {"folder": "/home/ann/tok"}}
    run_config.write_config(workdir, config)
    (workdir / run_config.COMMAND).write_text("python -m a --config.init=/home/ann/b '/home/ann'\n")
    model_card.write_card(load_run(workdir), tmp_path, FACTS)
    card = (tmp_path / "README.md").read_text()
    assert "ann" not in card
    for line in (
        "Text: `text:.../*.txt`, of which 20.0% is held out.",
        '    corpus.tokens.folder=".../tok"',
        "    python -m a --config.init=.../b ...",
    ):
        assert f"\n{line}\n" in card


@pytest.mark.parametrize(
    ("architecture", "shown"),
    [
        ("BertForPreTraining", "AutoModelForMaskedLM"),
        ("RobertaForMaskedLM", "AutoModelForMaskedLM"),
        ("BertForNextSentencePrediction", "AutoModelForNextSentencePrediction"),
        ("OpenAIGPTLMHeadModel", "AutoModelForCausalLM"),
        ("GPT2LMHeadModel", "AutoModelForCausalLM"),
        ("XLNetLMHeadModel", "AutoModelForCausalLM"),
        ("ElectraModel", "AutoModel"),
        (None, "AutoModel"),
    ],
)
def test_the_class_that_a_card_shows_keeps_the_head(seeds, tmp_path, architecture, shown):
    config = {"architectures": [architecture]} if architecture else {}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model_card.write_card(seeds[0], tmp_path, FACTS)
    card = (tmp_path / "README.md").read_text()
    assert f"    from transformers import AutoTokenizer, {shown}\n" in card
    assert f'    model = {shown}.from_pretrained("this folder")\n' in card
    note = "    # BertForPreTraining loads the head of next sentences, too.\n"
    assert (note in card) == (architecture == "BertForPreTraining")


def test_a_named_licence_counts_before_that_of_the_origin(seeds, tmp_path):
    model_card.write_card(seeds[0], tmp_path, FACTS._replace(license="apache-2.0", pool="mean"))
    assert model_card.read_license(tmp_path) == "apache-2.0"
    assert "SentenceTransformer" in (tmp_path / "README.md").read_text()
