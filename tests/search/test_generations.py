"""The generations' table against the trials that it is of."""

import optuna
import pytest

from limbeck.search import GeneticSampler, GeneticSettings, elm_space, generation_rows, run_search
from limbeck.search.genetic_sampler import generation_key

SPACE = elm_space(4, 12)
GENES = {
    "000-000-011-101": 3.0,
    "000-000-100-101": 1.0,
    "000-000-010-101": 8.0,
    "001-000-010-101": 8.0,
    "000-000-000-111": None,
}


def study_of(generations):
    """A study with the given generations written into it, evaluated as `GENES` says."""
    study = optuna.create_study(sampler=GeneticSampler(SPACE, GeneticSettings()), direction="maximize")
    for number, genes in enumerate(generations, start=1):
        study.set_user_attr(generation_key(number), {"genomes": genes, "breeding": {}})
    distributions = study.sampler.infer_relative_search_space(study, None)
    for gene, value in GENES.items():
        if value is not None:
            mapping = SPACE.decode(tuple(int(code, base=2) for code in gene.split("-")))
            params = dict(zip(distributions, mapping, strict=True))
            study.add_trial(optuna.create_trial(value=value, params=params, distributions=distributions))
    return study


def test_rows_are_statistics_of_members_that_have_a_value():
    genes = list(GENES)
    rows = generation_rows(study_of([genes[:2], [genes[0], genes[2], genes[3], genes[3], genes[4]], [genes[4]]]), SPACE)
    first, second = rows
    assert (first.maximum, first.minimum, first.mean, first.deviation) == (3.0, 1.0, 2.0, 1.0)
    assert (first.size, first.evaluated, first.best_gene, first.best) == (2, 2, "000-000-011-101", (0, 0, 6, 10))
    # 3, 8, 8, 8 of five: a genome that came twice counts twice, one without a value not at all.
    assert (second.maximum, second.minimum, second.mean) == (8.0, 3.0, 6.75)
    assert second.deviation == pytest.approx((((3 - 6.75) ** 2 + 3 * 1.25**2) / 4) ** 0.5)
    assert (second.size, second.evaluated, second.fitnesses) == (5, 2, (3.0, 8.0, 8.0, 8.0))
    assert (second.best_gene, second.best) == ("000-000-010-101", (0, 0, 5, 10))


def test_a_search_that_has_not_begun_has_no_rows():
    assert generation_rows(study_of([]), SPACE) == []


def test_rows_of_a_search_add_up():
    study = optuna.create_study(
        sampler=GeneticSampler(SPACE, GeneticSettings(population=8), seed=4), direction="maximize"
    )
    run_search(study, lambda candidates: [float(sum(c.mapping)) for c in candidates], generations=4, batch=3)
    rows = generation_rows(study, SPACE)
    assert [row.number for row in rows] == [1, 2, 3, 4]
    assert sum(row.evaluated for row in rows) == len(study.trials)
    assert max(row.maximum for row in rows) == study.best_value
    assert all(sum(row.best) == row.maximum for row in rows)
