"""Small random models of transformers, and what they compute: the fixtures of `releases`.

    PEER_PYTHON -m tests.support.transformers_releases tests/fixtures/releases NAME ...

It runs where transformers is, without our packages.
"""

import json
import pathlib
import sys

import numpy as np

SIZES = dict(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=20,
    type_vocab_size=2,
)
MERGES = [("a", "b"), ("Ġ", "a"), ("Ġa", "b"), ("t", "h"), ("Ġ", "th"), ("Ġth", "e")]


def write_roberta(folder):
    """A byte-level vocabulary with RoBERTa's marks, and a masked LM."""
    import tokenizers
    import transformers

    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *letters, *map("".join, MERGES), "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({x: i for i, x in enumerate(pieces)}))
    lines = ["#version: 0.2", *map(" ".join, MERGES), ""]
    (folder / "merges.txt").write_text("\n".join(lines))
    config = transformers.RobertaConfig(
        **{**SIZES, "type_vocab_size": 1}, vocab_size=len(pieces), layer_norm_eps=1e-5
    )
    # The head has the exact form all the same.
    config.hidden_act = "gelu_new"
    tokenizer = transformers.RobertaTokenizer.from_pretrained(folder)
    return transformers.RobertaForMaskedLM(config), tokenizer


def write_wordpieces(folder):
    """A vocabulary of BERT's, whose tokenizer is returned with its size."""
    import transformers

    marks = [f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")]
    pieces = [*marks, *"abehté", "##a", "##b", "##e", "##h", "the", "ab"]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    return transformers.BertTokenizer.from_pretrained(folder), len(pieces)


def write_distilbert(folder):
    """A masked LM without segments."""
    import transformers

    tokenizer, V = write_wordpieces(folder)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    config = transformers.DistilBertConfig(
        vocab_size=V, dim=16, n_heads=2, n_layers=2, hidden_dim=24, max_position_embeddings=20
    )
    return transformers.DistilBertForMaskedLM(config), tokenizer


def write_electra(folder):
    """A generator, whose embeddings are narrower than its states."""
    import transformers

    tokenizer, V = write_wordpieces(folder)
    config = transformers.ElectraConfig(**SIZES, vocab_size=V, embedding_size=8, hidden_act="relu")
    return transformers.ElectraForMaskedLM(config), tokenizer


WRITERS = {"roberta": write_roberta, "distilbert": write_distilbert, "electra": write_electra}
TEXTS = ["the ab the", "a", " the theab éa"]


def record(folder: pathlib.Path, name: str) -> None:
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    model, tokenizer = WRITERS[name](folder)
    rng = torch.Generator().manual_seed(0)
    for key, x in model.named_parameters():
        x.data = torch.randn(x.shape, generator=rng) * 0.3 + ("Norm.weight" in key)
    model.tie_weights()
    model.eval().save_pretrained(folder)
    rows = tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")
    with torch.no_grad():
        outputs = model(**rows, output_hidden_states=True)
    arrays = {"tokens": rows["input_ids"], "valid": rows["attention_mask"]}
    if "token_type_ids" in rows:
        arrays["segments"] = rows["token_type_ids"]
    arrays |= {"states": outputs.hidden_states[-1], "logits": outputs.logits}
    np.savez_compressed(folder / "outputs.npz", **{k: x.numpy() for k, x in arrays.items()})


if __name__ == "__main__":
    for name in sys.argv[2:]:
        record(pathlib.Path(sys.argv[1]) / name, name)
