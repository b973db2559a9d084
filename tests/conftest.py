"""Every test runs on the CPU, as eight devices; what one compiles, quickly, serves all others."""

import gc
import os
import tempfile
from collections.abc import Iterator

import pytest

from tests.support import compiler

os.environ["JAX_PLATFORMS"] = "cpu"
compiler.set_flags()
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit what is set here, as every process
    _compiled = tempfile.TemporaryDirectory(prefix="quartet-tests-compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _compiled.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


@pytest.fixture(scope="module", autouse=True)
def _settled() -> Iterator[None]:
    """What a file has compiled stays; to look through it for garbage takes a minute in all."""
    yield
    gc.freeze()


@pytest.fixture
def exactly() -> Iterator[None]:
    """What a test compiles has exact products."""
    import jax  # after the flags are set

    with jax.default_matmul_precision("highest"):
        yield


@pytest.fixture(scope="session")
def torch():
    """The module, for tests that compare with it."""
    return pytest.importorskip("torch", reason="compares with torch, which is not installed")


@pytest.fixture(scope="session")
def transformers():
    """Hugging Face's module, for tests that compare with it."""
    return pytest.importorskip("transformers", reason="transformers is not installed")
