"""The published seconds give the published numbers of updates, in every row of the table."""

import dataclasses

import pytest

from experiments.published_budgets import HOURS, ROWS, row, updates
from experiments.reference import find_reference
from experiments.registry import resolve
from experiments.table_plan import plan_by_table

# Updates in 6, 12 and 24 hours implied by the tables of Kaddour et al. 2023 (arXiv 2307.06440).
PUBLISHED = {
    "BERT baseline": (7989, 15978, 31957),
    "BERT Lion": (7989, 15978, 31957),
    "BERT layer stacking 4/8/16": (11705, 23411, 46823),
    "BERT selective backprop, β 1": (4379, 8759, 17518),
    "BERT selective backprop, β 2": (3572, 7144, 14289),
    "BERT selective backprop, β 3": (3016, 6033, 12066),
    "BERT RHO loss, 3,072": (4379, 8759, 17518),
    "BERT RHO loss, 15,360": (1560, 3120, 6240),
    "BERT Sophia": (7608, 15217, 30435),
    "T5 AdamW": (20950, 41901, 83802),
    "T5 Lion": (20709, 41418, 82837),
    "T5 Sophia": (18685, 37370, 74740),
    "T5 layer stacking 3/6/12": (30969, 61939, 123878),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_updates(name):
    assert tuple(updates(row(name), hours) for hours in HOURS) == PUBLISHED[name]


def test_layer_dropping_gets_a_third_more():
    """Published as × 1.33, from 11.8 of 16 layers in the mean; the slip at 7 layers is not used."""
    for hours, baseline in zip(HOURS, PUBLISHED["BERT baseline"], strict=True):
        gain = updates(row("BERT layer dropping"), hours) / baseline
        assert gain == pytest.approx(1.33, abs=0.005)


def test_every_row_is_tested():
    assert set(ROWS) == set(PUBLISHED) | {"BERT layer dropping"}


def test_selection_for_free_is_not_charged():
    free = dataclasses.replace(
        row("BERT RHO loss, 15,360"), method=resolve("bert_rho_free", "paper").method
    )
    assert updates(free, 12) == PUBLISHED["BERT baseline"][1]


def test_a_device_without_figures_plans_nothing():
    assert plan_by_table(row("BERT baseline"), find_reference("here")) is None
