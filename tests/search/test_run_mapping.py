"""A mapping search from request to record, with students that cost nothing."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from optuna.trial import TrialState

from limbeck.errors import Interrupted, OutputError, TrainingError
from limbeck.recipe.load import load_recipe
from limbeck.search import GeneticSettings, elm_space
from limbeck.search.genetic import first_generation, next_generation
from limbeck.search.mapping import search_mapping
from limbeck.search.mapping_space import to_binary
from limbeck.search.study import open_storage
from tests.support import mapping_search
from tests.support.corpora import write_text
from tests.support.mapping_search import STUDENT_LAYERS, TEACHER_LAYERS, fitness, make_request, recipe_data, scores_of

SPACE = elm_space(STUDENT_LAYERS, TEACHER_LAYERS)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    return mapping_search.write_teacher(tmp_path_factory.mktemp("searched"))


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    return write_text(tmp_path_factory.mktemp("searched-text"))


@pytest.fixture
def recipe(teacher, text):
    return recipe_data(teacher, text)


@pytest.fixture
def asked(monkeypatch):
    return mapping_search.install(monkeypatch)


def expected(generations, settings, seed=3):
    """The same search without a study: for each generation its genomes."""
    history = []
    for number in range(1, generations + 1):
        random = np.random.default_rng([seed, 0, number])
        if history:
            genomes, _ = next_generation(SPACE, history, settings, random)
        else:
            genomes = first_generation(SPACE, settings, random)
        history.append([(genome, fitness(SPACE.decode(genome))) for genome in genomes])
    return [[genome for genome, _ in generation] for generation in history]


def genes(generation):
    return [to_binary(genome, SPACE.bits) for genome in generation]


def load_study(path, name="mapping"):
    import optuna

    return optuna.load_study(study_name=name, storage=open_storage(path))


def test_the_record_is_the_search_that_the_operators_make(recipe, asked, tmp_path):
    record = search_mapping(make_request(recipe, tmp_path / "out"))
    generations = expected(3, GeneticSettings(population=5))
    assert [row["members"] for row in record["generations"]] == [genes(generation) for generation in generations]
    for row, generation in zip(record["generations"], generations, strict=True):
        values = [fitness(SPACE.decode(genome)) for genome in generation]
        assert row["maximum"] == max(values) and row["minimum"] == min(values)
        assert row["mean"] == pytest.approx(sum(values) / 5)
        assert row["deviation"] == pytest.approx((sum((v - sum(values) / 5) ** 2 for v in values) / 5) ** 0.5)
        assert fitness(tuple(row["best"])) == max(values)
        assert SPACE.encode(tuple(row["best"])) == tuple(int(code, 2) for code in row["best_gene"].split("-"))
    tried = {SPACE.decode(genome) for generation in generations for genome in generation}
    assert {tuple(candidate["mapping"]) for candidate in record["candidates"]} == tried
    values = [candidate["fitness"] for candidate in record["candidates"]]
    assert values == sorted(values, reverse=True) and record["best"] == record["candidates"][0]
    assert record["best"]["scores"] == scores_of(record["best"]["mapping"])
    json.dumps(record, allow_nan=False)


def test_nothing_is_trained_twice_and_a_generation_at_once(recipe, asked, tmp_path):
    record = search_mapping(make_request(recipe, tmp_path / "out"))
    assert len(asked.mappings) == len(set(asked.mappings)) == record["cost"]["evaluations"]
    costs = [row["evaluated"] for row in record["generations"]]
    assert [len(batch) for batch in asked.batches] == [cost for cost in costs if cost]
    assert sum(row["size"] for row in record["generations"]) == 15 > len(asked.mappings)


def test_fewer_at_once_find_the_same(recipe, asked, tmp_path):
    whole = search_mapping(make_request(recipe, tmp_path / "whole"))
    asked.batches.clear()
    parts = search_mapping(make_request(recipe, tmp_path / "parts", batch=2))
    assert max(len(batch) for batch in asked.batches) == 2
    assert parts["generations"] == whole["generations"]


def test_what_is_found_is_the_recipe_with_another_mapping(recipe, asked, tmp_path):
    record = search_mapping(make_request(recipe, tmp_path / "out", steps=7, share=0.5))
    assert asked.steps == {7} and asked.shares == [0.5]
    found = yaml.safe_load(yaml.safe_dump(record["recipe"]))
    assert found["stages"][0]["method"].pop("mapping") == record["best"]["mapping"]
    assert found == recipe, "the steps and the share were the proxy's"


def test_every_score_is_an_attribute_of_its_trial(recipe, asked, tmp_path):
    search_mapping(make_request(recipe, tmp_path / "out", generations=1))
    for trial in load_study(tmp_path / "out" / "search.journal").trials:
        mapping = tuple(trial.params.values())
        for name, score in scores_of(mapping).items():
            assert trial.user_attrs[f"score.{name}"] == score
        assert trial.value == fitness(mapping) and trial.user_attrs["generation"] == 1


def test_a_finished_search_goes_on_with_more_generations(recipe, asked, tmp_path):
    first = search_mapping(make_request(recipe, tmp_path / "out", generations=2))
    before = list(asked.mappings)
    again = search_mapping(make_request(recipe, tmp_path / "out", generations=2))
    assert asked.mappings == before and asked.teachers == 1, "nothing was left to do"
    assert again["generations"] == first["generations"]
    more = search_mapping(make_request(recipe, tmp_path / "out", generations=4))
    assert more["generations"][:2] == first["generations"] and len(more["generations"]) == 4
    assert len(set(asked.mappings)) == len(asked.mappings)


def test_parents_best_costs_a_whole_generation_each_time(recipe, asked, tmp_path):
    genetic = {"population": 4, "parents": "best"}
    record = search_mapping(make_request(recipe, tmp_path / "out", genetic=genetic))
    assert [row["evaluated"] for row in record["generations"]] == [4, 4, 4]


@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, Interrupted("the fine-tuning was stopped")])
def test_what_was_told_is_kept_when_it_is_stopped(recipe, asked, tmp_path, stopped_by):
    undisturbed = search_mapping(make_request(recipe, tmp_path / "whole"))
    asked.batches.clear()

    def stop(mappings):
        if len(asked.batches) == 2:
            raise stopped_by

    asked.before = stop
    with pytest.raises(Interrupted, match=r"what is evaluated is kept in .*search\.journal; the same command goes on"):
        search_mapping(make_request(recipe, tmp_path / "out", batch=2))
    told = list(asked.mappings)
    assert len(told) == 4
    states = [trial.state for trial in load_study(tmp_path / "out" / "search.journal").trials]
    assert states == [TrialState.COMPLETE] * 4 + [TrialState.FAIL]
    asked.before = None
    record = search_mapping(make_request(recipe, tmp_path / "out", batch=2))
    assert len(asked.mappings) == len(set(asked.mappings))
    assert record["generations"] == undisturbed["generations"] and record["cost"]["failed"] == 1


def test_a_diverged_student_has_no_fitness_and_costs_no_other(recipe, asked, tmp_path):
    first = SPACE.decode(expected(1, GeneticSettings(population=5))[0][1])
    asked.diverges.add(first)
    record = search_mapping(make_request(recipe, tmp_path / "out", generations=1))
    assert asked.mappings.count(first) == 2, "it is tried once more"
    assert len(record["candidates"]) == 4 and record["generations"][0]["size"] == 5
    [given_up] = record["given_up"]
    assert tuple(given_up["mapping"]) == first and given_up["problem"] == "its training diverged"


def test_a_student_that_cannot_be_scored_is_given_up_with_the_reason(recipe, asked, tmp_path, monkeypatch):
    from limbeck.search import mapping

    class Failing(mapping.HeldOutScores):
        def measure(self, student, plan, name):
            if student[-1] == 8:
                raise TrainingError("a cell failed")
            return {"agreement": float("nan")} if student[-1] == 7 else super().measure(student, plan, name)

    monkeypatch.setattr(mapping, "HeldOutScores", Failing)
    record = search_mapping(make_request(recipe, tmp_path / "out", generations=1, genetic={"population": 12}))
    ends = {one["mapping"][-1]: one["problem"] for one in record["given_up"]}
    assert ends[8] == "a cell failed" and "no number" in ends[7] and set(ends) == {7, 8}
    assert all(candidate["mapping"][-1] < 7 for candidate in record["candidates"])


def test_a_generation_without_any_fitness_ends_the_search(recipe, asked, tmp_path):
    class All:
        def __contains__(self, mapping):
            return True

    asked.diverges = All()
    with pytest.raises(TrainingError, match="lower the learning rate"):
        search_mapping(make_request(recipe, tmp_path / "out"))


def test_teacher_layers_limit_what_is_learned_from(recipe, asked, tmp_path):
    record = search_mapping(make_request(recipe, tmp_path / "out", teacher_layers=(2, 4, 5, 6)))
    assert {layer for mapping in asked.mappings for layer in mapping} <= {0, 2, 4, 5, 6}
    assert record["space"]["size"] == elm_space(STUDENT_LAYERS, TEACHER_LAYERS, (2, 4, 5, 6)).size


def test_only_stages_that_take_a_mapping_get_it(recipe, asked, tmp_path):
    stages = [recipe["stages"][0], {"method": {"name": "output_distribution"}, "training": {"max_steps": 5}}]
    record = search_mapping(make_request(recipe | {"stages": stages}, tmp_path / "out", steps=2, generations=1))
    first, second = record["recipe"]["stages"]
    assert first["method"]["mapping"] == record["best"]["mapping"] and "mapping" not in second["method"]
    assert record["methods"] == ["elm", "output_distribution"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 4}, "another seed: 3, not 4"),
        ({"stages.0.training.learning_rate": 1e-4}, "another stages.0.training.learning_rate: 0.001, not 0.0001"),
        ({"stages.0.method.hidden_weight": 2.0}, "another stages.0.method.hidden_weight: 1.0, not 2.0"),
        ({"student.shape.hidden": 16}, "another student.shape.hidden: 12, not 16"),
        ({"stages.0.training.bf16": True}, "another stages.0.training.bf16: false, not true"),
        ({"corpus.length": 24}, "another corpus: "),
    ],
)
def test_a_study_of_another_run_is_refused(recipe, asked, tmp_path, change, named):
    search_mapping(make_request(recipe, tmp_path / "out", generations=1))
    journal = tmp_path / "out" / "search.journal"
    before = load_study(journal)
    other = load_recipe(recipe, [f"{key}={json.dumps(value)}" for key, value in change.items()])
    with pytest.raises(OutputError, match="continue it as it was made") as caught:
        search_mapping(make_request(other, tmp_path / "out"))
    assert named in str(caught.value) and "\n" not in str(caught.value)
    after = load_study(journal)
    assert (after.trials, after.user_attrs) == (before.trials, before.user_attrs)


def test_a_study_of_other_models_text_or_search_is_refused(recipe, asked, tmp_path):
    search_mapping(make_request(recipe, tmp_path / "out", generations=1))
    other_teacher = recipe | {"teacher": {"model": str(mapping_search.write_teacher(tmp_path / "another", seed=9))}}
    other_text = recipe | {"corpus": recipe["corpus"] | {"sources": [str(write_text(tmp_path / "other", 20))]}}
    refused = [
        (make_request(other_teacher, tmp_path / "out"), "another teacher: "),
        (make_request(other_text, tmp_path / "out"), "another corpus: "),
        (make_request(recipe, tmp_path / "out", steps=9), "another stages.0.training.max_steps: 50, not 9"),
        (make_request(recipe, tmp_path / "out", share=0.5), "another share: 1.0, not 0.5"),
        (
            make_request(recipe, tmp_path / "out", genetic={"population": 6}),
            "settings.population: 5, not 6",
        ),
        (make_request(recipe, tmp_path / "out", teacher_layers=(1, 5, 7)), "another space.choices: "),
    ]
    for request, named in refused:
        with pytest.raises(OutputError, match=r"made for another") as caught:
            search_mapping(request)
        assert named in str(caught.value)


def test_the_same_run_under_another_roof_is_the_same_study(recipe, asked, tmp_path):
    storage = f"sqlite:///{tmp_path}/search.db"
    first = search_mapping(make_request(recipe, tmp_path / "out", storage=storage, generations=1))
    method = {"name": "elm", "mapping": [0, 0, 0, 8], "hidden_weight": 1.0}
    moved = recipe | {"output": "elsewhere", "name": "another", "stages": [recipe["stages"][0] | {"method": method}]}
    request = make_request(moved, tmp_path / "other", storage=storage, generations=2)
    assert search_mapping(request)["generations"][:1] == first["generations"]
    assert len(asked.mappings) == len(set(asked.mappings))


def test_a_mapping_that_somebody_queues_is_evaluated_beside_the_others(recipe, asked, tmp_path):
    first = search_mapping(make_request(recipe, tmp_path / "out", generations=1))
    chosen = (1, 2, 3, 8)
    assert chosen not in asked.mappings
    study = load_study(tmp_path / "out" / "search.journal")
    study.enqueue_trial({f"layer_{number}": layer for number, layer in enumerate(chosen, start=1)})
    record = search_mapping(make_request(recipe, tmp_path / "out", generations=1))
    assert asked.mappings[5:] == [chosen] and record["generations"] == first["generations"]
    [queued] = [one for one in record["candidates"] if tuple(one["mapping"]) == chosen]
    assert queued["generation"] is None and queued["fitness"] == fitness(chosen)
