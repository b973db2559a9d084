"""What was compiled for a run is there for its next life, and for the next run of its recipe."""

import hashlib
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from pretrain.runtime import compile_cache
from tests.support import commands
from tests.support import tiny_runs as toys

pytest_plugins = ["tests.support.tiny_runs"]


@pytest.fixture
def restored():
    names = ("jax_compilation_cache_dir", "jax_compilation_cache_max_size")
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def folder(monkeypatch, restored, tmp_path) -> pathlib.Path:
    """Where JAX keeps what it compiles from now on, of which there is nothing yet."""
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    compile_cache.keep(tmp_path)
    compute()
    (folder,) = tmp_path.iterdir()
    return folder


def compute() -> float:
    """The value of a function that is compiled anew, or taken from the folder."""
    return float(jax.jit(lambda x: jnp.dot(jnp.sin(x), x))(np.arange(64, dtype=np.float32)))


def is_sealed(entry: pathlib.Path) -> bool:
    content = entry.read_bytes()
    return content[:32] == hashlib.sha256(content[32:]).digest()


def flip(entry: pathlib.Path, bit: int) -> None:
    content = bytearray(entry.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    entry.write_bytes(content)


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
    assert all(each.startswith(f"sealed://{tmp_path}/cpu-") for each in found)


@pytest.mark.slow
def test_a_second_run_of_the_recipe_compiles_nothing_anew(toy, tmp_path):
    changes, none = {"optim.steps": 2}, {"JAX_COMPILATION_CACHE_DIR": ""}

    def kept() -> set[str]:
        files = (tmp_path / ".compiled" / "tiny_runs-bilm").glob("cpu-*/*-cache")
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


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda entry: flip(entry, 8 * 400), "the file is damaged"),
        (lambda entry: os.truncate(entry, entry.stat().st_size // 2), "the file is damaged"),
        (lambda entry: os.truncate(entry, 0), "the file is damaged"),
        (lambda entry: entry.chmod(0o622), "others can write to it"),
    ],
)
def test_a_damaged_program_is_named_and_replaced(damage, said, folder, capsys):
    (entry,) = folder.iterdir()
    assert is_sealed(entry)
    whole, value = entry.read_bytes(), compute()
    assert not capsys.readouterr().err
    damage(entry)
    assert compute() == value
    assert capsys.readouterr().err == f"{entry} is compiled anew: {said}\n"
    assert is_sealed(entry)
    assert entry.stat().st_mode & 0o777 == 0o600
    assert len(entry.read_bytes()) == pytest.approx(len(whole), rel=0.1)
    assert compute() == value
    assert not capsys.readouterr().err


def test_an_undamaged_program_is_not_written_again(folder):
    (entry,) = folder.iterdir()
    before = entry.stat()
    compute()
    assert (entry.stat().st_ino, entry.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_file_that_cannot_be_written_leaves_nothing_behind(folder, monkeypatch):
    (entry,) = folder.iterdir()
    entry.unlink()

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    compute()
    assert not list(folder.iterdir())


def test_old_programs_go_where_jax_is_to_keep_few(folder):
    (entry,) = folder.iterdir()
    (address,) = {jax.config.jax_compilation_cache_dir}
    entry.unlink()
    jax.config.update("jax_compilation_cache_max_size", 4000)
    jax.config.update("jax_compilation_cache_dir", address)
    compilation_cache.reset_cache()
    for power in range(2, 5):
        jax.jit(lambda x, power=power: x**power + power)(np.ones(64, np.float32))
    assert len(list(folder.glob("*-cache"))) == 1


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(
    ("mode", "owner", "said"),
    [(0o777, os.geteuid(), "others can write"), (0o700, os.geteuid() + 1, "another user")],
)
def test_programs_in_a_folder_of_others_are_not_run(mode, owner, said, folder, capsys, monkeypatch):
    jax.config.update("jax_compilation_cache_dir", None)
    folder.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    compile_cache.keep(folder.parent)
    assert jax.config.jax_compilation_cache_dir is None
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{folder} is not used" in line
    assert said in line


@pytest.mark.usefixtures("restored")
def test_an_impossible_folder_is_passed_over_in_silence(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    (tmp_path / "file").touch()
    for name in ("x" * 300, "file/below"):
        compile_cache.keep(tmp_path / name)
    assert not capsys.readouterr().err


PROGRAMS = """\
import sys
import jax, numpy as np
from pretrain.runtime import compile_cache
compile_cache.keep(sys.argv[1])
for power in range(1, 1 + int(sys.argv[2])):
    def program(x):
        return x ** power @ x.T
    program.__name__ = f"program_{power}"
    print(float(jax.jit(program)(np.arange(64, dtype=np.float32).reshape(8, 8)).sum()), flush=True)
"""


def run_programs(folder: pathlib.Path, count: int):
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": ""}
    return commands.run("-c", PROGRAMS, folder, count, environment=environment)


def test_another_process_compiles_nothing_anew(tmp_path):
    def stamps() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*/*-cache")}

    first = run_programs(tmp_path, 2)
    before = stamps()
    second = run_programs(tmp_path, 2)
    assert len([name for name in before if "program_" in name]) == 2
    assert stamps() == before
    assert (first.returncode, first.stdout, second.stderr) == (0, second.stdout, "")
