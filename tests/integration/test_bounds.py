"""Recipes compiled for chips that are not here move as little, and launch as little, as they did.

Skipped without the compiler: for TPUs pip install libtpu, for GPUs pip install --no-deps
jax_cuda12_plugin jax_cuda12_pjrt (both of JAX's version) nvidia-cuda-nvcc-cu12.  What a change
makes better is written into the file by hand.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from pretrain.aot import gpu_specs, tpu_specs

ROOT = pathlib.Path(__file__).parents[2]
BOUNDS = json.loads((ROOT / "tests/fixtures/bounds.json").read_text())
FIGURES = {  # of the command's report
    "GiB": r"total +([\d.]+)",
    "launches": r"launches +([\d,]+)",
    "GB": r"memory traffic +([\d.]+)",
    "ms": r"together +([\d.]+)",
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("recipe", BOUNDS)
def test_no_figure_of_a_recipe_is_a_twentieth_worse(recipe):
    bound = BOUNDS[recipe]
    is_tpu = bound["topology"].split(":")[0] in tpu_specs.CHIPS
    needed = ("libtpu",) if is_tpu else gpu_specs.PACKAGES
    if not all(gpu_specs.has_package(name) for name in needed):
        pytest.skip(f"the compiler for {bound['topology']} is not installed")
    words = [f"--config=configs/{recipe}", f"--topology={bound['topology']}"]
    words += [f"--config.{name}={value}" for name, value in bound["changes"].items()]
    ran = subprocess.run(
        [sys.executable, "-m", "pretrain.compile", *words],
        cwd=ROOT,
        text=True,
        capture_output=True,
        env={
            name: x for name, x in os.environ.items() if name not in ("XLA_FLAGS", "JAX_PLATFORMS")
        },
    )
    assert ran.returncode == 0, ran.stderr
    report = ran.stdout.split("\n\n")[-2]  # of the last phase
    found = {name: re.search(pattern, report)[1] for name, pattern in FIGURES.items()}
    found = {name: float(x.replace(",", "")) for name, x in found.items()}
    worse = {name: x for name, x in found.items() if x > 1.05 * bound["figures"][name]}
    assert not worse, found
