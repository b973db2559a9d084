"""Chooses the tests' compiler: a quick one, or that of users by TEST_COMPILER=production."""

import os
from collections.abc import Callable

CHOICES = ("quick", "production")


def is_production() -> bool:
    """Returns whether programs are compiled as users' are."""
    choice = os.environ.get("TEST_COMPILER") or "quick"
    if choice not in CHOICES:
        raise ValueError(f"TEST_COMPILER={choice}: choose one of {', '.join(CHOICES)}")
    return choice == "production"


def set_flags() -> None:
    """Sets the flags of JAX and XLA; to be called before JAX is imported."""
    flags = [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=8"]
    if not is_production():
        # The older loops compile in half the time; a release without that option passes over it.
        flags.append("--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters")
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    os.environ["XLA_FLAGS"] = " ".join(flags).strip()


def compiler_options() -> dict[str, int]:
    """Returns the options of `jax.jit` for programs that run for milliseconds only."""
    return {} if is_production() else {"xla_backend_optimization_level": 0}


def quick_jit(function: Callable, **options) -> Callable:
    """Returns the jitted function, compiled by the tests' compiler; options are `jax.jit`'s."""
    import jax  # here, so that `set_flags` comes first

    return jax.jit(function, compiler_options=compiler_options(), **options)
