"""A mapping search from request to record, with students that cost nothing."""

import json

import numpy as np
import pytest

from limbeck.errors import CorpusError, LimbeckError, OutputError, RecipeError, TrainingError
from limbeck.search import GeneticSettings, elm_space
from limbeck.search.genetic import first_generation, next_generation
from limbeck.search.mapping import search_mapping, task_measures
from limbeck.search.mapping_space import to_binary
from tests.support import mapping_search as searched
from tests.support.mapping_search import STUDENT_LAYERS, TEACHER_LAYERS, fitness, make_request, recipe_data, scores_of
from tests.support.task_files import write_tasks

SPACE = elm_space(STUDENT_LAYERS, TEACHER_LAYERS)


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
    assert len(asked.tried) == len(set(asked.tried)) == record["cost"]["evaluations"]
    costs = [row["evaluated"] for row in record["generations"]]
    assert [len(batch) for batch in asked.batches] == [cost for cost in costs if cost]
    assert sum(row["size"] for row in record["generations"]) == 15 > len(asked.tried)


def test_every_score_is_an_attribute_of_its_trial(recipe, asked, tmp_path, study):
    search_mapping(make_request(recipe, tmp_path / "out", generations=1))
    for trial in study().trials:
        mapping = tuple(trial.params.values())
        for name, score in scores_of(mapping).items():
            assert trial.user_attrs[f"score.{name}"] == score
        assert trial.value == fitness(mapping) and trial.user_attrs["generation"] == 1


def test_a_diverged_student_has_no_fitness_and_costs_no_other(recipe, asked, tmp_path):
    first = SPACE.decode(expected(1, GeneticSettings(population=5))[0][1])
    asked.diverges.add(first)
    record = search_mapping(make_request(recipe, tmp_path / "out", generations=1))
    assert asked.tried.count(first) == 2, "it is tried once more"
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


def test_teacher_layers_limit_what_is_learned_from(recipe, asked, tmp_path):
    record = search_mapping(make_request(recipe, tmp_path / "out", teacher_layers=(2, 4, 5, 6)))
    assert {layer for mapping in asked.tried for layer in mapping} <= {0, 2, 4, 5, 6}
    assert record["space"]["size"] == elm_space(STUDENT_LAYERS, TEACHER_LAYERS, (2, 4, 5, 6)).size


def test_only_stages_that_take_a_mapping_get_it(recipe, asked, tmp_path):
    stages = [recipe["stages"][0], {"method": {"name": "output_distribution"}, "training": {"max_steps": 5}}]
    record = search_mapping(make_request(recipe | {"stages": stages}, tmp_path / "out", steps=2, generations=1))
    first, second = record["recipe"]["stages"]
    assert first["method"]["mapping"] == record["best"]["mapping"] and "mapping" not in second["method"]
    assert record["methods"] == ["elm", "output_distribution"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"genetic": {"population": 6}}, "settings.population: 5, not 6"),
        ({"teacher_layers": (1, 5, 7)}, "another space.choices: "),
    ],
    ids=str,
)
def test_a_study_of_another_space_or_population_is_refused(recipe, asked, tmp_path, options, named):
    search_mapping(make_request(recipe, tmp_path / "out", generations=1))
    with pytest.raises(OutputError, match="made for another") as caught:
        search_mapping(make_request(recipe, tmp_path / "out", **options))
    assert named in str(caught.value)


def test_the_mapping_that_a_recipe_names_is_no_part_of_the_study(recipe, asked, tmp_path):
    search_mapping(make_request(recipe, tmp_path / "out", generations=1))
    method = {"name": "elm", "mapping": [0, 0, 0, 8], "hidden_weight": 1.0}
    other = recipe | {"stages": [recipe["stages"][0] | {"method": method}]}
    search_mapping(make_request(other, tmp_path / "out", generations=2))
    assert len(asked.tried) == len(set(asked.tried))
    changed = recipe | {"stages": [recipe["stages"][0] | {"method": method | {"hidden_weight": 2.0}}]}
    with pytest.raises(OutputError, match=r"another stages\.0\.method\.hidden_weight: 1\.0, not 2\.0"):
        search_mapping(make_request(changed, tmp_path / "out"))


@pytest.fixture
def refused(asked):
    def check(kind, request, *parts):
        with pytest.raises(kind) as caught:
            search_mapping(request)
        line = str(caught.value)
        assert "\n" not in line and all(part in line for part in parts), line
        assert not asked.batches, "nothing is trained"
        return line

    return check


def shape(recipe, **changes):
    return recipe | {"student": {"shape": recipe["student"]["shape"] | changes}}


def method(recipe, **options):
    return recipe | {"stages": [recipe["stages"][0] | {"method": options}]}


def test_a_student_deeper_than_its_teacher(refused, recipe, tmp_path):
    deep = shape(recipe, layers=9)
    refused(LimbeckError, make_request(deep, tmp_path / "out"), "9", "8")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"teacher_layers": (3,)}, ["[0, 0, 0, 3] is the only layer mapping there is"]),
        ({"teacher_layers": (9,)}, ["Teacher layer 9 does not exist", "1 to 8"]),
        ({"generations": 0}, ["--generations 0", "1 or more"]),
        ({"batch": 0}, ["--batch 0"]),
        ({"genetic": {"population": 1}}, ["A population of 1 cannot breed"]),
        ({"genetic": {"population": 10**6}}, ["A population of 1000000", "at most"]),
        ({"genetic": {"crossover": 1.2}}, ["crossover 1.2", "0 to 1"]),
        ({"genetic": {"flip": float("nan")}}, ["flip nan"]),
        ({"genetic": {"elite": 12}}, ["elite of 12"]),
        ({"genetic": {"parents": "bests"}}, ["Unknown parents 'bests'", "Did you mean 'best'?"]),
        ({"genetic": {"populaton": 3}}, ["Unknown genetic setting 'populaton'", "Did you mean 'population'?"]),
    ],
)
def test_numbers_and_names_that_cannot_be_meant(refused, recipe, tmp_path, options, parts):
    refused(RecipeError, make_request(recipe, tmp_path / "out", **options), *parts)
    assert not (tmp_path / "out").exists()


def test_teacher_layers_that_leave_no_mapping(refused, files, tmp_path):
    deep = searched.write_teacher(tmp_path, layers=12)
    request = make_request(recipe_data(deep, files[1]), tmp_path / "out", teacher_layers=(1, 2))
    refused(RecipeError, request, "No layer mapping is left", "teacher layers 5 to 12", "[1, 2]")


def test_a_method_without_a_mapping(refused, recipe, tmp_path):
    line = refused(RecipeError, make_request(method(recipe, name="minilmv2", relation_heads=2), tmp_path / "out"))
    assert line == (
        "'minilmv2' takes no layer mapping; methods that do are bert_pkd, elm, hidden_states, minilm, "
        "mlkd_bert, tinybert."
    )


def test_a_method_that_cannot_learn_by_every_mapping(refused, recipe, tmp_path):
    request = make_request(shape(method(recipe, name="bert_pkd"), hidden=16), tmp_path / "out")
    refused(RecipeError, request, "The search may try mapping [0, 0, 0, 1]", "bert_pkd", "has none")


def test_too_little_held_out_text(refused, recipe, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("\n\n".join(f"one line of text number {n} and no more" for n in range(12)))
    little = recipe | {"corpus": recipe["corpus"] | {"sources": [str(short)]}}
    refused(CorpusError, make_request(little, tmp_path / "out"), "hold out more text")


@pytest.mark.parametrize(
    ("options", "error", "parts"),
    [
        ({"tasks": "sst3"}, RecipeError, ["Unknown task 'sst3'", "Did you mean 'sst2'?"]),
        ({"tasks": " , "}, RecipeError, ["--tasks names no task"]),
        ({"tasks": "rte", "preset": "quik"}, RecipeError, ["Unknown preset 'quik'", "Did you mean 'quick'?"]),
        ({"tasks": "rte", "seeds": 0}, RecipeError, ["--seeds is 0"]),
        ({"tasks": "none", "settings": ["epochs=1"]}, RecipeError, ["--set-task", "there is none"]),
        ({"tasks": "rte", "settings": ["epochs"]}, RecipeError, ["'epochs' has no value"]),
        ({"tasks": "rte", "settings": ["epoch=1"]}, RecipeError, ["epoch"]),
        ({"tasks": "rte", "data": "/nowhere"}, CorpusError, ["'/nowhere' does not exist"]),
        ({"tasks": "sst2", "data": "FILES"}, CorpusError, ["SST-2"]),
        ({"data": "FILES"}, CorpusError, ["SST-2"]),
        ({"tasks": "cola", "data": "FILES"}, CorpusError, ["CoLA"]),
    ],
)
def test_proxy_tasks_that_cannot_be(asked, recipe, tmp_path, options, error, parts):
    options = {"tasks": None, "data": None, "preset": "quick", "seeds": 1} | options
    if options["data"] == "FILES":
        options["data"] = str(write_tasks(tmp_path / "data"))
    with pytest.raises(error) as caught:
        search_mapping(make_request(recipe, tmp_path / "out", measures=task_measures(options.pop("tasks"), **options)))
    line = str(caught.value)
    assert "\n" not in line and all(part in line for part in parts), line


def test_a_task_without_labels_to_score(refused, recipe, tmp_path):
    data = write_tasks(tmp_path / "data")
    for split in ("train", "dev"):
        (data / "RTE" / f"{split}.tsv").unlink()
    (data / "RTE" / "test.tsv").write_text("index\tsentence1\tsentence2\n0\tone text\tanother\n")
    measures = task_measures("rte", data=str(data), preset="quick", seeds=1)
    refused(CorpusError, make_request(recipe, tmp_path / "out", measures=measures), "RTE")
