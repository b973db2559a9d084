"""The search compiles meshes and batch sizes that may fit, and sorts them by speed."""

import math

import numpy as np

from pretrain.aot import mesh_search
from pretrain.aot.mesh_search import Candidate, Outcome
from tests.support import tiny_runs


def small_config(**batches):
    config = tiny_runs.get_config("clm")
    config.batches.update(batches)
    return config


def test_meshes_use_all_chips_and_split_whole_heads():
    meshes = list(mesh_search.iter_meshes(16, heads=12))
    assert len(meshes) == len(set(meshes)) == 12
    assert {math.prod(mesh) for mesh in meshes} == {16}
    assert {tensor for *_, tensor in meshes} == {1, 2, 4}


def test_batch_sizes_divide_over_the_chips():
    found = {(x.B, x.mesh[-1]) for x in mesh_search.list_candidates(small_config(B=24), 16)}
    sizes = {1: {48, 96}, 2: {24, 48, 96}}  # by the chips that share rows
    assert found == {(B, tensor) for tensor, some in sizes.items() for B in some}


def test_no_candidate_is_without_rows():
    assert {x.B for x in mesh_search.list_candidates(small_config(B=2), 1)} == {1, 2, 4, 8}


def search(config, outcome) -> list[Outcome]:
    """Searches with a function from candidate to outcome in place of the compiler."""
    return mesh_search.search(config, 8, 1, print, outcome)


def test_the_table_is_sorted_by_tokens_per_second():
    rates = iter(np.random.default_rng(0).permutation(1000) + 1)
    found = lambda x: Outcome(x, 1.0, 2**30, rate=next(rates), share=0.5)  # noqa: E731
    outcomes = search(small_config(B=16), found)
    rows = mesh_search.format_table(outcomes)[1:]
    printed = [int(row.split()[-2].replace(",", "")) for row in rows]
    assert printed == sorted((x.rate for x in outcomes), reverse=True)
    assert len(set(printed)) > 5


def test_candidates_larger_than_a_refused_one_are_not_compiled():
    asked = []

    def outcome(x: Candidate) -> Outcome:
        asked.append(x)
        return mesh_search.refuse_size(x, "17G") if x.B >= 16 else Outcome(x, 1.0, rate=1.0)

    outcomes = search(small_config(B=16), outcome)
    assert {x.B for x in asked} == {4, 8, 16}
    assert {x.candidate.B for x in outcomes if x.why} == {16, 32, 64}
    assert all("does not fit" in row for row in mesh_search.format_table(outcomes)[-3:])


def test_the_search_ends_when_its_time_is_over():
    said = []
    mesh_search.search(small_config(), 8, 0.0, said.append, compile_candidate=None)
    assert "were not tried" in said[-1]


def test_the_most_rows_that_fit_are_looked_for_with_each_remat():
    room = {"none": 8, "dots": 64, "full": 200}

    def outcome(x: Candidate) -> Outcome:
        fits = room[x.remat] >= x.B
        return Outcome(x, 1.0, rate=1.0) if fits else mesh_search.refuse_size(x, "17G")

    outcomes = mesh_search.fit_rows(small_config(B=48), 8, 1, print, outcome)
    fitted = {x.candidate.remat: x.candidate.B for x in outcomes if not x.why}
    refused = {x.candidate.remat: x.candidate.B for x in outcomes if x.why}
    assert fitted == {"none": 8, "dots": 64, "full": 128}
    assert refused == {"none": 16, "dots": 128, "full": 256}
