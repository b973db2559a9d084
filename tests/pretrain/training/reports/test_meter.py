"""The meter misses no step, and counts none twice."""

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

from modules.metrics import Sum
from pretrain.training.reports import meter as meters
from pretrain.training.reports.meter import Meter, measure_length
from pretrain.training.train_state import StepMetrics


def step_metrics(loss, consecutive_skips=0):
    loss = Sum(jnp.float32(loss), jnp.float32(1), train=True)
    return StepMetrics({"loss": loss}, jnp.float32(0), jnp.int32(consecutive_skips))


def take(meter, metrics):
    with meter.measure_wait():
        pass
    return meter.add(metrics)


def test_the_meter_looks_at_each_step_once_and_one_step_late():
    meter = Meter()
    assert take(meter, step_metrics(1)) is None
    seen = [take(meter, step_metrics(n)) for n in (2, 3)] + [meter.add(None)]
    assert [float(x.sums["loss"].total) for x in seen if x] == [1, 2, 3]
    assert meter.add(None) is None


def test_the_meter_loses_no_step_between_two_readings():
    meter, found = Meter(), []
    for n in range(1, 7):
        take(meter, step_metrics(n))
        if n % 3 == 0:
            meter.add(None)
            found.append(meter.read()[0]["loss"])
    assert found == [2.0, 5.0]


@pytest.mark.parametrize("every", [1, 2, 4])
def test_a_step_takes_as_long_however_often_it_is_read(every, monkeypatch):
    now = [0.0]

    def get(metrics):
        now[0] += 5 * (metrics is not None)  # the device is done with a step
        return metrics

    monkeypatch.setattr(meters.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(meters.jax, "device_get", get)
    meter, rates = Meter(), []
    for step in range(9):
        with meter.measure_wait():
            now[0] += 1
        now[0] += 2
        meter.add(step_metrics(1.0), tokens=8)
        if step % every == 0:
            meter.add(None)
            rates.append(meter.read()[1])
    # The first one compiles: it is not timed, nor what the device does for it.
    assert all(x["tokens_per_s"] == pytest.approx(1) for x in rates[1:])
    assert all(x["data_wait"] == pytest.approx(1 / 8) for x in rates[1:])
    assert rates[0]["steps_per_s"] == 0


def test_the_meter_goes_on_from_sums_that_json_has_kept():
    meter, again = Meter(), Meter()
    for n in (1, 1 / 3):
        take(meter, step_metrics(n))
    meter.add(None)
    again.load_state_dict(json.loads(json.dumps(meter.state_dict())))
    assert again.sums == meter.sums


def test_the_meter_leaves_skipped_steps_out():
    meter = Meter()
    for loss, skips in ((2, 0), (math.nan, 1), (math.nan, 2), (4, 0)):
        take(meter, step_metrics(loss, skips))
    meter.add(None)
    assert meter.read()[0]["loss"] == 3.0
    take(meter, step_metrics(math.nan, 1))
    meter.add(None)
    assert meter.read()[0] == {}


@pytest.mark.parametrize(
    ("shapes", "length"),
    [
        ({"tokens_BL": (2, 5), "weight_B": (2,)}, 5),
        ({"tokens_BZL": (2, 2, 9)}, 8),  # rows hold the token behind the last one, too
        ({"tokens_BOL": (2, 4, 6)}, 6),
        ({"a/tokens_BL": (2, 3), "b/tokens_BL": (2, 4)}, 7),
        ({"features_BF": (2, 5)}, 8),
    ],
)
def test_a_batch_is_as_long_as_its_arrays_are(shapes, length):
    assert measure_length({name: np.zeros(x) for name, x in shapes.items()}, 8) == length
