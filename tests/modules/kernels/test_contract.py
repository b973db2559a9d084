"""Every kernel is compared with its reference, and every choice of a form has a default."""

import importlib
import pkgutil

import pytest

import modules.kernels

FILES = [module.name for module in pkgutil.iter_modules(modules.kernels.__path__)]


def test_every_kernel_is_compared_with_its_reference():
    tests = [importlib.import_module(f"{__package__}.test_{name}") for name in FILES]
    cases = [test.CASE for test in tests if hasattr(test, "CASE")]
    cases += [case for test in tests for case in getattr(test, "CASES", {}).values()]
    compared = {file.__name__.rpartition(".")[2] for case in cases for file in case.files}
    assert compared == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_forms_name_a_default(name):
    kernel = importlib.import_module(f"modules.kernels.{name}")
    assert "default" in getattr(kernel, "FORMS", {"default": None})
