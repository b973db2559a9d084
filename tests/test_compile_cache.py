"""What was compiled for a run is there for its next life, and for the next run of its recipe."""

import pathlib

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from pretrain import compile_cache
from tests import toy as toys

pytest_plugins = ["tests.toy"]


@pytest.fixture
def restored():
    before = jax.config.jax_compilation_cache_dir
    yield
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


@pytest.mark.usefixtures("restored")
def test_a_folder_that_the_environment_names_is_left_alone(monkeypatch, tmp_path):
    before = jax.config.jax_compilation_cache_dir
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "mine"))
    compile_cache.keep(tmp_path / "other")
    assert jax.config.jax_compilation_cache_dir == before


@pytest.mark.usefixtures("restored")
def test_programs_of_unlike_cpus_lie_apart(monkeypatch, tmp_path):
    """One that was compiled for instructions which a CPU does not know would end the process."""
    found = set()
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setattr(compile_cache, "CPU", tmp_path / "cpuinfo")
    for speed, flags in enumerate(["sse avx", "sse avx avx512f", "sse avx"]):
        compile_cache.CPU.write_text(f"cpu MHz\t: {speed}\nflags\t\t: {flags}\n")
        compile_cache.keep(tmp_path)
        found.add(jax.config.jax_compilation_cache_dir)
    assert len(found) == 2
    assert all(pathlib.Path(each).parent == tmp_path for each in found)


def test_a_second_run_of_the_recipe_compiles_nothing_anew(toy, tmp_path):
    changes, none = {"optim.steps": 2}, {"JAX_COMPILATION_CACHE_DIR": ""}

    def kept() -> set[str]:
        files = (tmp_path / ".compiled" / "toy-bilm").glob("cpu-*/*-cache")
        return {path.name for path in files}

    for name in ("one", "two"):
        process = toy.start("bilm", tmp_path / name, changes, **none)
        said = process.communicate()
        assert process.returncode == 0, said
        if name == "one":
            first = kept()
            assert any("train_step" in each for each in first), first
    assert kept() == first
    assert toys.written(tmp_path / "one") == toys.written(tmp_path / "two")
