"""The genetic algorithm as a sampler: the same generations whoever evaluates them, and nothing evaluated twice."""

import math

import optuna
import pytest
from optuna.trial import TrialState

from limbeck.errors import RecipeError, TrainingError
from limbeck.search import GeneticSampler, GeneticSettings, elm_space, generation_rows, run_search
from limbeck.search import genetic_sampler as module
from limbeck.search.genetic_sampler import recorded_generation
from limbeck.search.mapping_space import from_binary
from limbeck.search.mapping_trials import distributions, genome_of, mapping_of, suggest
from tests.support.known_search import SPACE, evaluate, expected_generations, fitness, generations_of, sampler


def new_study(**options):
    return optuna.create_study(sampler=sampler(**options), direction="maximize")


def evaluated(study):
    return [genome_of(trial, SPACE) for trial in study.get_trials(states=(TrialState.COMPLETE,))]


@pytest.mark.parametrize("parents", ["generation", "best"])
@pytest.mark.parametrize("batch", [1, 4, 6, 100])
def test_generations_are_those_of_the_algorithm_without_optuna(batch, parents):
    settings = GeneticSettings(population=6, parents=parents)
    study, expected = new_study(settings=settings), expected_generations(4, settings)
    for asked, there in ((2, 2), (2, 2), (4, 4), (1, 4)):
        study.sampler = sampler(settings)
        run_search(study, evaluate, generations=asked, batch=batch)
        assert generations_of(study, there) == expected[:there]
        assert recorded_generation(study.user_attrs, there + 1) is None
        assert sorted(evaluated(study)) == sorted({genome for generation in expected[:there] for genome in generation})


def test_optuna_drives_the_sampler_by_itself():
    study = new_study()
    study.optimize(lambda trial: fitness(suggest(trial, SPACE)), n_trials=30)
    result = evaluated(study)
    assert len(result) == len(set(result)) == 30
    bred = sum(name.startswith("generation ") for name in study.user_attrs)
    assert generations_of(study, bred) == expected_generations(bred)
    assert set(result) <= {genome for generation in generations_of(study, bred) for genome in generation}


def test_a_generation_that_diverged_as_a_whole_says_so():
    study = new_study(attempts=1)
    with pytest.raises(TrainingError, match="No mapping of generation 1 reached a finite fitness"):
        run_search(study, lambda candidates: [math.inf] * len(candidates), generations=2, batch=6)


def test_queued_mappings_are_evaluated_or_refused_and_values_are_reused():
    study = new_study()
    for mapping in [(3, 6, 9, 12), (0, 0, 0, 12), (7, 2, 0, 12), (3, 6, 9, 12)]:
        study.enqueue_trial({f"layer_{m}": layer for m, layer in enumerate(mapping, start=1)})
    seen = []

    def remember(candidates):
        seen.extend(candidate.mapping for candidate in candidates)
        return evaluate(candidates)

    run_search(study, remember, generations=2, batch=1)
    assert seen[:2] == [(3, 6, 9, 12), (0, 0, 0, 12)]
    assert len(seen) == len(set(seen))
    refused = study.trials[2]
    assert refused.state == TrialState.FAIL
    assert "outside the search space" in refused.user_attrs["refused"]
    assert study.trials[3].value == study.trials[0].value == fitness((3, 6, 9, 12))
    assert generations_of(study, 2) == expected_generations(2)


def test_two_that_ask_at_once_never_get_the_same():
    study = new_study()
    taken = []
    while len(taken) < 14:  # more than the generation holds: the rest is new to it
        trial = study.ask()
        taken.append(SPACE.encode(suggest(trial, SPACE)))
    assert taken[:6] == expected_generations(1)[0]
    assert len(set(taken)) == 14


def test_a_trial_waits_until_earlier_ones_have_chosen(monkeypatch):
    study = new_study()
    first, second = study.ask(), study.ask()
    naps = []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            suggest(first, SPACE)

    monkeypatch.setattr(module.time, "sleep", nap)
    suggest(second, SPACE)
    assert len(naps) == 3
    chosen = [genome_of(trial, SPACE) for trial in study.trials]
    assert chosen == expected_generations(1)[0][:2]


def test_a_trial_does_not_wait_for_the_dead(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.1)
    study = new_study()
    study.ask()
    chosen = [suggest(study.ask(), SPACE) for _ in range(2)]
    assert [SPACE.encode(mapping) for mapping in chosen] == expected_generations(1)[0][:2]
    assert mapping_of(study.trials[0], SPACE) is None


def test_a_small_space_is_searched_to_the_end():
    space = elm_space(2, 3)
    settings = GeneticSettings(population=4, parents="best")
    study = optuna.create_study(sampler=GeneticSampler(space, settings), direction="maximize")
    run_search(study, lambda candidates: [sum(c.mapping) for c in candidates], generations=50, batch=4)
    assert len(study.trials) == space.size
    study.optimize(lambda trial: sum(suggest(trial, space)), n_trials=1)
    assert len(study.trials) == space.size + 1


def test_a_search_that_changes_nothing_ends_too():
    settings = GeneticSettings(population=6, crossover=0.0, mutation=0.0)
    study = new_study(settings=settings)
    run_search(study, evaluate, generations=20, batch=6)
    assert len(study.trials) == 6
    study.optimize(lambda trial: fitness(suggest(trial, SPACE)), n_trials=2)
    assert len(set(evaluated(study))) == 8


def test_what_cannot_be_searched_is_refused():
    with pytest.raises(ValueError, match="maximises one fitness"):
        suggest(optuna.create_study(sampler=sampler()).ask(), SPACE)
    with pytest.raises(ValueError, match="'width' is not part of a layer mapping"):
        new_study().ask().suggest_int("width", 1, 3)
    with pytest.raises(TypeError, match="GeneticSampler"):
        run_search(optuna.create_study(), evaluate, generations=1, batch=1)
    space = elm_space(2, 3)
    with pytest.raises(RecipeError, match=f"more than the {space.size} layer mappings"):
        GeneticSampler(space, GeneticSettings(population=space.size + 1))
    for values in ({"generations": 0, "batch": 1}, {"generations": 1, "batch": 0}):
        with pytest.raises(RecipeError, match="would do nothing"):
            run_search(new_study(), evaluate, **values)
    for count in (5, 7):  # values of 6 mappings
        with pytest.raises(ValueError, match="shorter|longer"):
            run_search(new_study(), lambda candidates: [1.0] * count, generations=1, batch=6)  # noqa: B023


GENES = {"000-000-011-101": 3.0, "000-000-100-101": 1.0, "000-000-010-101": 8.0, "001-000-010-101": 8.0}
UNKNOWN = "000-000-000-111"


def test_rows_are_statistics_of_members_that_have_a_value():
    genes = [*GENES, UNKNOWN]
    study = new_study()
    assert generation_rows(study, SPACE) == []
    members = [genes[:2], [genes[0], genes[2], genes[3], genes[3], UNKNOWN], [UNKNOWN]]
    for number, generation in enumerate(members, start=1):
        study.set_user_attr(module.generation_key(number), {"genomes": generation, "breeding": {}})
    for gene, value in GENES.items():
        params = dict(zip(distributions(SPACE), SPACE.decode(from_binary(gene)), strict=True))
        study.add_trial(optuna.create_trial(value=value, params=params, distributions=distributions(SPACE)))
    # 3, 8, 8, 8 of five: a genome that came twice counts twice, one without a value not at all.
    second = [genes[0], genes[2], genes[3], genes[3]]
    deviation = pytest.approx((((3 - 6.75) ** 2 + 3 * 1.25**2) / 4) ** 0.5)
    names = ("maximum", "minimum", "mean", "deviation", "size", "evaluated", "best_gene", "best", "members")
    assert [tuple(getattr(row, name) for name in names) for row in generation_rows(study, SPACE)] == [
        (3.0, 1.0, 2.0, 1.0, 2, 2, genes[0], [0, 0, 6, 10], genes[:2]),
        (8.0, 3.0, 6.75, deviation, 5, 2, genes[2], [0, 0, 5, 10], second),
    ]
