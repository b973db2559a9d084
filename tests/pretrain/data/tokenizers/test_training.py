"""Samples and alphabets to learn from, and the threads to do it with."""

import os

import pytest

from pretrain.data.tokenizers.training import count_threads, rank_characters, sample_texts


def test_a_sample_is_drawn_from_the_whole_text():
    chosen = sample_texts(map(str, range(10_000)), 1000)
    assert len(set(chosen)) == 1000
    assert sum(int(number) for number in chosen) / 1000 == pytest.approx(4999.5, rel=0.1)
    assert sample_texts(["a", "b"], 5) == ["a", "b"]


def test_characters_that_hardly_occur_have_no_piece():
    assert rank_characters(["a" * 60_000, "b \n" * 60_000, "xyz"]) == ["a", "b"]
    assert rank_characters(["abc"]) == ["a", "b", "c"]
    assert rank_characters(["", " "]) == []


@pytest.mark.parametrize(("named", "count"), [("3", 3), ("", None), ("0", None), ("many", None)])
def test_threads_are_as_many_as_the_other_libraries_are_told(monkeypatch, named, count):
    monkeypatch.setenv("RAYON_NUM_THREADS", named)
    assert count_threads() == (count or os.cpu_count())
