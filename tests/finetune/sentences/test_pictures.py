"""Judgements become one picture."""

from finetune.sentences.pictures import draw_judgements


def test_judgements_become_a_png_whatever_they_lack(tmp_path):
    one = {
        "without commonest": {"0": 50.0, "10": 60.0},
        "singular shares": [0.7, 0.3],
        "cosines": {"a": [0.1, 0.9], "b": [0.5]},
        "alignment": 0.2,
        "uniformity": -1.5,
    }
    other = one | {"without commonest": {"0": 1.0}, "alignment": None}
    draw_judgements({"one": one, "other": other}, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
