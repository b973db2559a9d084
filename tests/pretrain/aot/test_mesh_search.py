"""The search compiles meshes and batch sizes that may fit, and sorts them by speed."""

import dataclasses
import math

import jax
import numpy as np
import pytest

from pretrain.aot import compiled_step, mesh_search
from pretrain.aot.mesh_search import Candidate, Outcome
from tests.support import tiny_runs
from tests.support.slices import grid_devices, make_slice

TARGET = make_slice("v5e", 2, 4, devices=grid_devices(2, 4))


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
    assert {x.B for x in mesh_search.list_candidates(small_config(B=24), 16)} == {48, 96}


@pytest.fixture
def pretend(monkeypatch):
    """Replaces compiling by a function from candidate to outcome; returns the candidates asked."""

    def replace(outcome):
        asked = []

        def compile_candidate(config, target, candidate):
            asked.append(candidate)
            return outcome(candidate)

        monkeypatch.setattr(mesh_search, "compile_candidate", compile_candidate)
        return asked

    return replace


def test_the_table_is_sorted_by_tokens_per_second(pretend):
    rates = iter(np.random.default_rng(0).permutation(1000) + 1)
    pretend(lambda x: Outcome(x, 1.0, 2**30, rate=next(rates), share=0.5))
    outcomes = mesh_search.search(small_config(B=16), TARGET, 1, print)
    rows = mesh_search.format_table(outcomes)[1:]
    printed = [int(row.split()[-2].replace(",", "")) for row in rows]
    assert printed == sorted((x.rate for x in outcomes), reverse=True)
    assert len(set(printed)) > 5


def test_candidates_larger_than_a_refused_one_are_not_compiled(pretend):
    def outcome(x: Candidate) -> Outcome:
        return mesh_search.too_large(x, "17G") if x.B >= 16 else Outcome(x, 1.0, rate=1.0)

    asked = pretend(outcome)
    outcomes = mesh_search.search(small_config(B=16), TARGET, 1, print)
    assert {x.B for x in asked} == {8, 16}
    assert {x.candidate.B for x in outcomes if x.why} == {16, 32, 64}
    assert all("does not fit" in row for row in mesh_search.format_table(outcomes)[-3:])


@pytest.mark.parametrize(
    ("memory", "B", "why"),
    [(1e4, 8, "the state alone takes"), (1e9, 6, "6 rows does not divide over 4")],
)
def test_impossible_candidates_are_refused_without_compiling(monkeypatch, memory, B, why):
    monkeypatch.setattr(compiled_step, "compiled", None)
    target = make_slice("v5e", 2, 4, devices=jax.devices())
    target = dataclasses.replace(target, chip=dataclasses.replace(target.chip, memory=memory))
    candidate = Candidate((2, 2, 2), "full", B)
    assert why in mesh_search.compile_candidate(small_config(), target, candidate).why


def test_the_search_ends_when_its_time_is_over(pretend):
    said = []
    asked = pretend(lambda x: Outcome(x, 1.0))
    mesh_search.search(small_config(), TARGET, 0.0, said.append)
    assert not asked
    assert "were not tried" in said[-1]
