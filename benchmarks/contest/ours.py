"""Runs our train step of a recipe, exactly as `pretrain.training.loop` does."""

import itertools
from typing import Any

import jax

from benchmarks.contest import jobs, synthetic_data, worker
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.runtime import malloc
from pretrain.training import optimizer
from pretrain.training.compiled_steps import Steps
from pretrain.training.metrics import mean


class Ours:
    """The contender of the whole step: transfer, corruption, gradients, clipping, update."""

    def __init__(self, settings: dict[str, Any]):
        recipe = settings["recipe"]
        objective, train = jobs.build(recipe)
        self.layout, self.B = Layout(make_mesh(**recipe["mesh"])), train.B
        steps = Steps(
            objective,
            optimizer.make(**recipe["optim"])[0],
            self.layout,
            [train],
            seed=recipe["seed"],
            parts=recipe["train"]["parts"],
            average=recipe["train"]["average"],
        )
        self.train, self.state = steps.train, steps.init()
        # Drawn before the clock starts, as the peers' are.
        self.batches = itertools.cycle([train.batch(i) for i in range(synthetic_data.BATCHES)])
        self.facts = {
            "flops": objective.flops(train.B, recipe["batches"]["L"]),
            "parameters": sum(x.size for x in jax.tree.leaves(self.state.params)),
            "devices": jax.device_count(),
            "device": jax.devices()[0].device_kind,
        }

    def step(self) -> Any:
        batch = self.layout.shard_batch(next(self.batches), self.B)
        self.state, metrics = self.train(self.state, batch)
        return metrics  # on the device: to read them here would wait for the step

    def finish(self) -> None:
        jax.block_until_ready(self.state)

    def loss(self, result: Any) -> float:
        return mean(jax.device_get(result.sums["loss"]))

    def peak_bytes(self) -> int:
        # The allocator of a CPU keeps no statistics.
        stats = jax.local_devices()[0].memory_stats()
        return stats["peak_bytes_in_use"] if stats else worker.resident_peak()


if __name__ == "__main__":
    malloc.keep_memory()  # as every job does
    worker.serve(Ours)
