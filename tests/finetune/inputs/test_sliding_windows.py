"""Windows over a long text: they cover it, and count each answer once."""

import itertools
import tracemalloc

import numpy as np
import pytest

from finetune.inputs.sliding_windows import assign_tokens, find_tokens, split_windows


def originals(n, room, stride):
    """run_squad.py's loop."""
    found, start = [], 0
    while start < n:
        length = min(n - start, room)
        found.append(range(start, start + length))
        if start + length == n:
            break
        start += min(length, stride)
    return found


def original_owner(found, token):
    """run_squad.py's _check_is_max_context, asked of every window."""
    scores = [
        min(token - w.start, w.stop - 1 - token) + 0.01 * len(w) if token in w else -1.0
        for w in found
    ]
    return scores.index(max(scores))


@pytest.mark.parametrize(("room", "stride"), itertools.product((1, 4, 9), (1, 3, 4, 9, 20)))
def test_windows_and_owners_are_the_original_s_and_cover_every_token(room, stride):
    for n in range(1, 40):
        check_against_the_original(n, room, stride)


def check_against_the_original(n, room, stride):
    found = split_windows(n, room, stride)
    assert found == originals(n, room, stride)
    assert set(itertools.chain(*found)) == set(range(n))
    whose = assign_tokens(found, n)
    assert whose.tolist() == [original_owner(found, token) for token in range(n)]
    assert all(token in found[number] for token, number in enumerate(whose))


@pytest.mark.parametrize(("room", "stride"), [(12, 4), (10, 2), (9, 3), (20, 4)])
def test_an_answer_of_half_the_overlap_lies_whole_in_the_window_of_its_start(room, stride):
    longest = (room - stride) // 2
    for n in range(1, 60):
        found = split_windows(n, room, stride)
        whose = assign_tokens(found, n)
        for length in range(1, longest + 1):
            for start in range(n - length + 1):
                whole = [w for w in found if w.start <= start and start + length <= w.stop]
                assert whole
                assert found[whose[start]] in whole  # and as it has one owner, it counts once


def test_no_token_is_one_empty_window():
    assert split_windows(0, 5, 2) == [range(0)]
    assert assign_tokens([range(0)], 0).shape == (0,)


def test_the_tokens_of_an_answer_are_those_with_any_of_its_characters():
    starts, ends = np.array([0, 3, 6, 6, 9]), np.array([3, 5, 6, 9, 12])
    for start, end in itertools.combinations(range(14), 2):
        any_of = [i for i in range(5) if set(range(starts[i], ends[i])) & set(range(start, end))]
        expected = (any_of[0], any_of[-1]) if any_of else None
        found = find_tokens(starts, ends, start, end)
        assert found == expected


def test_the_owners_of_a_long_text_take_memory_for_its_tokens_alone():
    n, room = 20_000, 24
    found = split_windows(n, room, 4)
    tracemalloc.start()
    whose = assign_tokens(found, n)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 * n
    assert len(found) == whose.max() + 1 == (n - room) // 4 + 1
