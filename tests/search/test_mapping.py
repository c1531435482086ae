"""A mapping search from request to record, with students that cost nothing."""

import pytest

from limbeck.errors import TrainingError
from limbeck.recipe.load import load_recipe
from limbeck.search import GeneticSettings, elm_space
from limbeck.search.mapping import search_mapping
from limbeck.search.mapping_space import to_binary
from tests.support import known_search
from tests.support import mapping_search as searched
from tests.support.mapping_search import STUDENT_LAYERS, TEACHER_LAYERS, fitness, make_request, scores_of

SPACE = elm_space(STUDENT_LAYERS, TEACHER_LAYERS)


def expected(generations):
    """The same search without a study: for each generation its genomes."""
    settings = GeneticSettings(population=5)
    return known_search.expected_generations(generations, settings, seed=3, space=SPACE, fitness=fitness)


@pytest.fixture
def run(recipe, tmp_path):
    """Searches into `out`."""
    return lambda data=recipe, **options: search_mapping(make_request(data, tmp_path / "out", **options))


def test_the_record_is_the_search_that_the_operators_make(run, calls, study):
    record = run()
    for row, generation in zip(record["generations"], expected(3), strict=True):
        assert row["members"] == [to_binary(genome, SPACE.bits) for genome in generation]
        values = [fitness(SPACE.decode(genome)) for genome in generation]
        assert fitness(tuple(row["best"])) == row["maximum"] == max(values)
    tried = {SPACE.decode(genome) for generation in expected(3) for genome in generation}
    assert {tuple(candidate["mapping"]) for candidate in record["candidates"]} == tried
    values = [candidate["fitness"] for candidate in record["candidates"]]
    assert values == sorted(values, reverse=True) and record["best"] == record["candidates"][0]
    assert record["best"]["scores"] == scores_of(record["best"]["mapping"])
    # Nothing is trained twice, and a generation at once.
    assert len(calls.tried) == len(set(calls.tried)) == record["cost"]["evaluations"]
    costs = [row["evaluated"] for row in record["generations"]]
    assert [len(batch) for batch in calls.batches] == [cost for cost in costs if cost]
    assert sum(row["size"] for row in record["generations"]) == 15 > len(calls.tried)
    for trial in study().trials:
        scores = scores_of(tuple(trial.params.values()))
        assert {name: trial.user_attrs[f"score.{name}"] for name in scores} == scores
        assert trial.value == sum(scores.values()) / 2 and trial.user_attrs["generation"] in (1, 2, 3)


def test_a_diverged_student_has_no_fitness_and_costs_no_other(run, calls):
    first = SPACE.decode(expected(1)[0][1])
    calls.diverges.add(first)
    record = run(generations=1)
    assert calls.tried.count(first) == 2, "it is tried once more"
    assert len(record["candidates"]) == 4 and record["generations"][0]["size"] == 5
    [given_up] = record["given_up"]
    assert tuple(given_up["mapping"]) == first and given_up["problem"] == "its training diverged"


def test_a_student_that_cannot_be_scored_is_given_up_with_the_reason(run, calls, monkeypatch):
    class Failing(searched.FakeScores):
        def measure(self, student, plan, name, learned):
            if student[-1] == 8:
                raise TrainingError("a cell failed")
            return {"agreement": float("nan")} if student[-1] == 7 else super().measure(student, plan, name, learned)

    monkeypatch.setattr(searched.mapping.held_out_scores, "HeldOutScores", Failing)
    record = run(generations=1, genetic={"population": 12})
    ends = {item["mapping"][-1]: item["problem"] for item in record["given_up"]}
    assert ends[8] == "a cell failed" and "NaN" in ends[7] and set(ends) == {7, 8}
    assert all(candidate["mapping"][-1] < 7 for candidate in record["candidates"])


def test_teacher_layers_limit_what_is_learned_from(run, calls):
    record = run(teacher_layers=(2, 4, 5, 6))
    assert {layer for mapping in calls.tried for layer in mapping} <= {0, 2, 4, 5, 6}
    assert record["space"]["size"] == elm_space(STUDENT_LAYERS, TEACHER_LAYERS, (2, 4, 5, 6)).size


def test_only_stages_that_take_a_mapping_get_it(run, recipe, calls):
    stages = [recipe["stages"][0], {"method": {"name": "output_distribution"}, "training": {"max_steps": 5}}]
    record = run(recipe | {"stages": stages}, steps=2, generations=1)
    first, second = record["recipe"]["stages"]
    assert first["method"]["mapping"] == record["best"]["mapping"] and "mapping" not in second["method"]
    assert record["methods"] == ["elm", "output_distribution"]


def test_a_study_goes_on_whatever_the_recipes_own_mapping(run, recipe, calls):
    run(generations=1)
    run(load_recipe(recipe, ["stages.0.method={name: elm, mapping: [0, 0, 0, 8]}"]), generations=2)
    assert len(calls.tried) == len(set(calls.tried))
