"""GPUs are described to the compiler, and counted."""

import re

import pytest

from pretrain.aot import gpu_specs
from pretrain.runtime.errors import UserError


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        (
            "h100",
            "core_count: 132|major: 9 minor: 0|optin: 232448|device_description_str: .NVIDIA H",
        ),
        ("h200", "memory_bandwidth: 4800000000000|device_memory_size: 1501"),
        ("a100", "core_count: 108|fpus_per_core: 64|major: 8 minor: 0"),
        ("l4", "threads_per_core_limit: 1536|major: 8 minor: 9|optin: 101376"),
    ],
)
def test_a_target_has_the_numbers_of_its_card(kind, facts):
    target = gpu_specs.describe_target(kind)
    assert all(re.search(fact, target) for fact in facts.split("|"))
    assert gpu_specs.CHIPS[kind].peak > 1e14
    assert target.count("{") == target.count("}") == 4


def test_gpus_without_a_number_are_refused():
    with pytest.raises(UserError, match="GPUs are counted, as in h100:8"):
        gpu_specs.make_slice("h100:2x2", "h100", "2x2")


def test_without_its_compiler_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(gpu_specs, "PACKAGES", ("no_such_package.at_all",))
    with pytest.raises(UserError, match=r"pip install 'jax\[cuda12\]' .*no_such_package"):
        gpu_specs.make_slice("h100:1", "h100", "1")
