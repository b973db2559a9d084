"""The package that pip installs: what is in it, and that it runs outside the checkout."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.tiny_runs import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = [x.rstrip("*") for x in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]]


@pytest.mark.parametrize("extra", ["cuda", "tpu", "docs", "dev"])
def test_an_extra_is_what_its_requirements_file_adds(extra):
    base = [] if extra == "docs" else ["-r requirements.txt"]  # the site is built without the code
    lines = (ROOT / f"requirements-{extra}.txt").read_text().splitlines()
    lines = [line.partition("#")[0].strip() for line in lines]  # without the reasons
    assert lines == base + PROJECT["project"]["optional-dependencies"][extra]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    pytest.importorskip("setuptools", "77", reason="builds a wheel with setuptools")
    folder = tmp_path_factory.mktemp("wheel")
    # A copy: a build leaves folders beside what it builds.
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / "src" / name, ignore=shutil.ignore_patterns("*.pyc"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "requirements.txt"):
        shutil.copy(ROOT / name, folder / "src")
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", folder]
    subprocess.run([sys.executable, "-m", "pip", "wheel", folder / "src", *options], check=True)
    return next(folder.glob("quartet-*.whl"))


@pytest.mark.slow
def test_the_wheel_holds_all_code(wheel):
    packed = set(zipfile.ZipFile(wheel).namelist())
    files = [x for name in FOLDERS for x in (ROOT / name).rglob("*") if x.suffix in (".py", ".sh")]
    assert {str(file.relative_to(ROOT)) for file in files} <= packed


@pytest.mark.slow
def test_an_installed_package_trains_outside_the_checkout(wheel, tmp_path):
    place = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(place)
    words = ["pretrain", "--config=xlnet:mini", "--config.optim.steps=2", "--workdir=run"]
    environment = {**os.environ, "PYTHONPATH": str(place)}
    subprocess.run(
        [sys.executable, "-m", "quartet.command", *words], cwd=tmp_path, env=environment, check=True
    )
    assert (tmp_path / "run" / "checkpoints" / "2").is_dir()


@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_the_constraints_pin_every_requirement_within_its_range(python):
    lines = (ROOT / f"constraints-{python}.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        if text := line.partition("#")[0].strip():
            wanted = Requirement(text)
            version = pinned[canonicalize_name(wanted.name)]
            assert wanted.specifier.contains(version, prereleases=True), wanted


def test_the_citation_and_the_package_have_one_version():
    version = PROJECT["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()
