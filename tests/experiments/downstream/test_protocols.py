"""What the studies' protocols say, what their averages are made of, and the seeds' interval."""

import numpy as np
import pytest
import scipy.stats

from experiments.downstream.protocols import PROTOCOLS, find_protocol, summarise
from experiments.downstream.registry import TASKS
from models.errors import UserError


def test_settings_of_the_studies():
    ntng = find_protocol("ntng")
    glue, superglue, sni = (ntng.for_task(t) for t in ("glue/rte", "superglue/cb", "sni"))
    assert (glue.epochs, glue.peak_learning_rate, glue.batch_size) == (5, 4e-5, 16)
    assert (superglue.epochs, superglue.peak_learning_rate) == (10, 5e-5)
    assert (sni.epochs, sni.batch_size, sni.schedule) == (2, 8, "constant")
    assert (glue.hidden_dim, glue.pooling, glue.dropout, glue.length) == (1024, "first", 0.1, 128)
    ultrafast = find_protocol("ultrafastbert")
    assert ultrafast.for_task("glue/cola").epochs == 15
    assert ultrafast.for_task("glue/rte").epochs == 5
    with pytest.raises(UserError, match=r"Did you mean ntng\?"):
        find_protocol("ntn")


@pytest.mark.parametrize("name", PROTOCOLS)
def test_averages_are_made_of_metrics_that_exist(name):
    for average in PROTOCOLS[name].averages:
        for task, metric in average.parts:
            assert metric in TASKS[task].metrics


def test_average_wants_every_part():
    glue, superglue = PROTOCOLS["ntng"].averages
    assert len(glue.parts) == 9 and len(superglue.parts) == 6
    assert not any("wnli" in task for task, _ in glue.parts)
    scores = {part: float(index) for index, part in enumerate(glue.parts)}
    assert glue.of(scores) == 4.0
    del scores["glue/cola", "matthews"]
    assert glue.of(scores) is None
    without_cola = PROTOCOLS["ultrafastbert"].averages[0]
    assert without_cola.of(scores) == pytest.approx(3.5)


def test_interval_over_seeds_is_students():
    values = [0.5, 0.6, 0.9]
    mean, half = summarise(values)
    low, high = scipy.stats.t.interval(
        0.95, df=2, loc=np.mean(values), scale=scipy.stats.sem(values)
    )
    assert (mean - half, mean + half) == pytest.approx((low, high))
    assert summarise([0.5]) == (0.5, None)
