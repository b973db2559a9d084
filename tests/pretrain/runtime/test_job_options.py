"""A job from Python runs as one that the command line starts without flags."""

import pytest
from absl import flags

from pretrain import cli
from pretrain.runtime.job_options import DEFAULTS, JobOptions

# The command alone knows how it was started, and that it is a process of its own; pretraining alone
# has a corpus to verify.
FLAGS = sorted({*JobOptions._fields} - {"name", "command", "joins", "verify"})


@pytest.mark.parametrize("name", FLAGS)
def test_an_option_has_the_default_of_its_flag(name):
    defaults = {flag.name: flag.default for flag in flags.FLAGS.get_flags_for_module(cli)}
    assert getattr(DEFAULTS, name) == defaults[name]
