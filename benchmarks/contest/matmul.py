"""Measures the ceiling: products of large matrices on all devices, in the recipe's dtype."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.contest import worker

WIDTH = {"cpu": 2048}  # elsewhere 8192: enough to hide the launch


class MatMul:
    """The contender that multiplies a square matrix on each device."""

    def __init__(self, settings: dict[str, Any]):
        n, devices = WIDTH.get(jax.default_backend(), 8192), jax.device_count()
        mesh = jax.make_mesh((devices,), ("rows",))
        rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["rows"], []))
        dtype = jnp.dtype(settings["recipe"]["model"]["dtype"])
        x = jax.random.normal(jax.random.key(0), (n * devices, n), dtype)
        w = jax.random.normal(jax.random.key(1), (n, n), dtype) * n**-0.5
        # The scale n^-0.5 leaves the products' variance at 1, however many follow each other.
        self.x, self.w = jax.device_put(x, rows), jax.device_put(w, whole)
        self.multiply = jax.jit(jnp.matmul, out_shardings=rows)
        self.facts = {"flops": 2.0 * n**3 * devices}

    def step(self) -> Any:
        # Each product reads the last one: none can be dropped as unused.
        self.x = self.multiply(self.x, self.w)

    def finish(self) -> None:
        jax.block_until_ready(self.x)

    def loss(self, result: Any) -> None:
        return None

    def peak_bytes(self) -> int:
        return worker.resident_peak()

    def profile(self, folder: str) -> contextlib.AbstractContextManager:
        return jax.profiler.trace(folder)


if __name__ == "__main__":
    worker.serve(MatMul)
