"""Correlations equal those of `scipy`, whatever the order of rows, and with values that repeat."""

import math
import random
import warnings

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.stats import ConstantInputWarning, pearsonr, spearmanr

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.evaluation.similarities import spearman_agreement
from limbeck.kinds.scoring import score
from tests.oracles.generated import on_generated
from tests.support.tasks import make_task

# Few values, so that many repeat, and many values, also of very different size.
NUMBERS = st.one_of(
    st.sampled_from([0.0, 0.5, 1.0, 2.5, 5.0]),
    st.floats(-1, 1).map(lambda number: round(number, 6)),
    st.integers(-10_000, 10_000).map(float),
)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=30)


def by_scipy(correlation, gold, predicted):
    """Return a correlation, and 0 where it is undefined."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        value = float(correlation(gold, predicted).statistic)
    return 0.0 if math.isnan(value) else value


@on_generated(1_000, kind=st.sampled_from(["similarity", "regression"]), pairs=PAIRS, seed=st.integers(0, 10_000))
def test_correlations_are_those_of_scipy(kind, pairs, seed):
    random.Random(seed).shuffle(pairs)
    gold, predicted = zip(*pairs, strict=True)
    rows = [LabelledRow(str(number), "a", "b", value) for number, value in enumerate(gold)]
    found = score(make_task(kind, metrics=("spearman", "pearson")), "validation", rows, list(predicted))
    assert found["spearman"] == pytest.approx(by_scipy(spearmanr, gold, predicted), abs=1e-9)
    assert found["pearson"] == pytest.approx(by_scipy(pearsonr, gold, predicted), abs=1e-9)


@on_generated(1_000, pairs=PAIRS)
def test_the_agreement_of_two_models_is_spearmans_correlation(pairs):
    student, teacher = (np.array(side) for side in zip(*pairs, strict=True))
    found = spearman_agreement(student, teacher)
    assert np.nan_to_num(found) == pytest.approx(by_scipy(spearmanr, student, teacher), abs=1e-9)
