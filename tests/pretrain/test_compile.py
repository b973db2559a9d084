"""The command prints a step's memory, collectives and least time, or why it does not fit.

Tests that need the compiler for TPUs (pip install libtpu) are skipped where it is missing.
"""

import dataclasses
import importlib.util
import os
import re
import subprocess
import sys

import jax
import pytest

from pretrain import compile
from pretrain.aot import mesh_search, roofline, step_memory
from tests.support import tiny_runs
from tests.support.slices import compile_step, grid_devices, make_slice

LIBTPU = pytest.mark.skipif(
    not importlib.util.find_spec("libtpu"), reason="libtpu is not installed: pip install libtpu"
)


def test_the_report_has_every_figure():
    step = compile_step("clm", data=2, fsdp=2, tensor=2)
    target = make_slice("v5e", 2, 4)
    estimate = roofline.estimate(step.program, target, grid_devices(2, 4))
    lines = "\n".join(compile.describe_step(step, estimate, target))
    for words in ("parameters", "activations", "fits", "all-reduce", "intensity", "tokens/s"):
        assert words in lines


def command(recipe: str, topology: str, *flags: str) -> subprocess.CompletedProcess:
    """The command on a toy recipe, with the compiler flags of users."""
    dropped = {"XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_PLATFORMS"}
    words = [f"--config=tests/support/tiny_runs.py:{recipe}", f"--topology={topology}", *flags]
    return subprocess.run(
        [sys.executable, "-m", "pretrain.compile", *words],
        cwd=tiny_runs.ROOT,
        text=True,
        capture_output=True,
        env={k: v for k, v in os.environ.items() if k not in dropped},
    )


@LIBTPU
def test_a_step_that_fits_is_reported():
    ran = command("clm", "v5e:2x2", "--config.mesh.fsdp=4", "--config.model.dtype=bfloat16")
    assert ran.returncode == 0, ran.stderr
    assert "8 rows of 32 tokens on v5e:2x2: 4 chips, data=1 fsdp=4 tensor=1" in ran.stdout
    assert re.search(r"total +0\.\d+ +0%: fits", ran.stdout)
    assert re.search(r"together .* tokens/s of a chip", ran.stdout)
    assert "all-gather" in ran.stdout


@LIBTPU
def test_a_step_too_large_ends_with_the_compilers_line():
    ran = command("clm", "v5e:1x1", "--config.batches.B=2097152")
    assert ran.returncode == 1
    assert "exceeds available HBM (15.75G)" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert re.search(r"activations +\d\d", ran.stdout)


@LIBTPU
@pytest.mark.slow
@pytest.mark.parametrize("recipe", tiny_runs.RECIPES)
@pytest.mark.parametrize("topology", ["v4:2x2x2", "v5e:2x4", "v5p:2x2x2", "v6e:2x4"])
def test_every_recipe_compiles_for_every_chip(recipe, topology):
    mesh = ("--config.mesh.data=2", "--config.mesh.fsdp=2", "--config.mesh.tensor=2")
    ran = command(recipe, topology, *mesh)
    assert ran.returncode == 0, ran.stderr
    assert f"on {topology}: 8 chips" in ran.stdout


@LIBTPU
@pytest.mark.slow
def test_the_search_prints_compiled_meshes_by_speed():
    ran = command("bilm", "v5e:1x2", "--search", "--minutes=1")
    assert ran.returncode == 0, ran.stderr
    rates = [int(row.split()[-2].replace(",", "")) for row in ran.stdout.splitlines()[1:]]
    assert rates == sorted(rates, reverse=True)
    assert rates


@pytest.mark.parametrize(
    ("memory", "B", "why"),
    [(1e4, 8, "the state alone takes"), (1e9, 6, "6 rows does not divide over 4")],
)
def test_impossible_candidates_are_refused_without_compiling(monkeypatch, memory, B, why):
    monkeypatch.setattr(step_memory, "compile_step", None)
    target = make_slice("v5e", 2, 4, devices=jax.devices())
    target = dataclasses.replace(target, chip=dataclasses.replace(target.chip, memory=memory))
    candidate = mesh_search.Candidate((2, 2, 2), "full", B)
    config = tiny_runs.get_config("clm")
    assert why in compile.compile_candidate(config, target, candidate).why
