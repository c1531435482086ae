"""A mapping search from request to record, with students that cost nothing."""

import pytest

from limbeck.errors import LimbeckError, OutputError, TrainingError
from limbeck.recipe.load import load_recipe
from limbeck.search import GeneticSettings, elm_space
from limbeck.search.mapping import search_mapping, task_measures
from limbeck.search.mapping_space import to_binary
from tests.support import known_search
from tests.support import mapping_search as searched
from tests.support.mapping_search import STUDENT_LAYERS, TEACHER_LAYERS, fitness, make_request, recipe_data, scores_of
from tests.support.task_files import write_tasks

SPACE = elm_space(STUDENT_LAYERS, TEACHER_LAYERS)


def expected(generations):
    """The same search without a study: for each generation its genomes."""
    settings = GeneticSettings(population=5)
    return known_search.expected_generations(generations, settings, seed=3, space=SPACE, fitness=fitness)


@pytest.fixture
def run(recipe, tmp_path):
    """Searches into `out`."""
    return lambda data=recipe, **options: search_mapping(make_request(data, tmp_path / "out", **options))


def test_the_record_is_the_search_that_the_operators_make(run, asked, study):
    record = run()
    for row, generation in zip(record["generations"], expected(3), strict=True):
        assert row["members"] == [to_binary(genome, SPACE.bits) for genome in generation]
        values = [fitness(SPACE.decode(genome)) for genome in generation]
        assert row["maximum"] == max(values) and row["minimum"] == min(values)
        assert row["mean"] == pytest.approx(sum(values) / 5)
        assert row["deviation"] == pytest.approx((sum((v - sum(values) / 5) ** 2 for v in values) / 5) ** 0.5)
        assert fitness(tuple(row["best"])) == max(values)
        assert to_binary(SPACE.encode(tuple(row["best"])), SPACE.bits) == row["best_gene"]
    tried = {SPACE.decode(genome) for generation in expected(3) for genome in generation}
    assert {tuple(candidate["mapping"]) for candidate in record["candidates"]} == tried
    values = [candidate["fitness"] for candidate in record["candidates"]]
    assert values == sorted(values, reverse=True) and record["best"] == record["candidates"][0]
    assert record["best"]["scores"] == scores_of(record["best"]["mapping"])
    # Nothing is trained twice, and a generation at once.
    assert len(asked.tried) == len(set(asked.tried)) == record["cost"]["evaluations"]
    costs = [row["evaluated"] for row in record["generations"]]
    assert [len(batch) for batch in asked.batches] == [cost for cost in costs if cost]
    assert sum(row["size"] for row in record["generations"]) == 15 > len(asked.tried)
    for trial in study().trials:
        scores = scores_of(tuple(trial.params.values()))
        assert {name: trial.user_attrs[f"score.{name}"] for name in scores} == scores
        assert trial.value == sum(scores.values()) / 2 and trial.user_attrs["generation"] in (1, 2, 3)


def test_a_diverged_student_has_no_fitness_and_costs_no_other(run, asked):
    first = SPACE.decode(expected(1)[0][1])
    asked.diverges.add(first)
    record = run(generations=1)
    assert asked.tried.count(first) == 2, "it is tried once more"
    assert len(record["candidates"]) == 4 and record["generations"][0]["size"] == 5
    [given_up] = record["given_up"]
    assert tuple(given_up["mapping"]) == first and given_up["problem"] == "its training diverged"


def test_a_student_that_cannot_be_scored_is_given_up_with_the_reason(run, asked, monkeypatch):
    class Failing(searched.FakeScores):
        def measure(self, student, plan, name):
            if student[-1] == 8:
                raise TrainingError("a cell failed")
            return {"agreement": float("nan")} if student[-1] == 7 else super().measure(student, plan, name)

    monkeypatch.setattr(searched.mapping.scoring, "HeldOutScores", Failing)
    record = run(generations=1, genetic={"population": 12})
    ends = {one["mapping"][-1]: one["problem"] for one in record["given_up"]}
    assert ends[8] == "a cell failed" and "no number" in ends[7] and set(ends) == {7, 8}
    assert all(candidate["mapping"][-1] < 7 for candidate in record["candidates"])


def test_teacher_layers_limit_what_is_learned_from(run, asked):
    record = run(teacher_layers=(2, 4, 5, 6))
    assert {layer for mapping in asked.tried for layer in mapping} <= {0, 2, 4, 5, 6}
    assert record["space"]["size"] == elm_space(STUDENT_LAYERS, TEACHER_LAYERS, (2, 4, 5, 6)).size


def test_only_stages_that_take_a_mapping_get_it(run, recipe, asked):
    stages = [recipe["stages"][0], {"method": {"name": "output_distribution"}, "training": {"max_steps": 5}}]
    record = run(recipe | {"stages": stages}, steps=2, generations=1)
    first, second = record["recipe"]["stages"]
    assert first["method"]["mapping"] == record["best"]["mapping"] and "mapping" not in second["method"]
    assert record["methods"] == ["elm", "output_distribution"]


def test_a_study_is_that_of_a_space_and_a_population_and_not_of_the_recipes_own_mapping(run, recipe, asked):
    run(generations=1)
    method = "stages.0.method={{name: elm, mapping: [0, 0, 0, 8], hidden_weight: {}}}"
    run(load_recipe(recipe, [method.format(1.0)]), generations=2)
    assert len(asked.tried) == len(set(asked.tried))
    for changes, options, named in (
        ([], {"genetic": {"population": 6}}, r"settings\.population: 5, not 6"),
        ([], {"teacher_layers": (1, 5, 7)}, r"another space\.choices: "),
        ([method.format(2.0)], {}, r"another stages\.0\.method\.hidden_weight: 1\.0, not 2\.0"),
    ):
        with pytest.raises(OutputError, match=named):
            run(load_recipe(recipe, changes), **options)


def measures(tasks=None, **options):
    return {"measures": lambda: task_measures(tasks, **{"preset": "quick", "seeds": 1, **options})}


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"teacher_layers": (3,)}, ["[0, 0, 0, 3] is the only layer mapping there is"]),
        ({"teacher_layers": (9,)}, ["Teacher layer 9 does not exist", "1 to 8"]),
        ({"generations": 0}, ["--generations 0", "1 or more"]),
        ({"batch": 0}, ["--batch 0"]),
        ({"genetic": {"population": 1}}, ["A population of 1 cannot breed"]),
        ({"genetic": {"population": 10**6}}, ["A population of 1000000", "at most"]),
        ({"genetic": {"populaton": 3}}, ["Unknown genetic setting 'populaton'", "Did you mean 'population'?"]),
        (["student.shape={layers: 9, hidden: 12, heads: 2}"], ["9", "8"]),
        (["stages.0.method={name: minilmv2, relation_heads: 2}"],
         ["'minilmv2' takes no layer mapping; methods that do are bert_pkd, elm, hidden_states, minilm, mlkd_bert, t"]),
        (["stages.0.method=bert_pkd", "student.shape={layers: 4, hidden: 16, heads: 2, ffn: 16}"],
         ["The search may try mapping [0, 0, 0, 1]", "bert_pkd", "has none"]),
        (["corpus.sources=[short.txt]"], ["hold out more text"]),
        (measures("sst3"), ["Unknown task 'sst3'", "Did you mean 'sst2'?"]),
        (measures(" , "), ["--tasks names no task"]),
        (measures("rte", preset="quik"), ["Unknown preset 'quik'", "Did you mean 'quick'?"]),
        (measures("rte", seeds=0), ["--seeds is 0"]),
        (measures("none", settings=["epochs=1"]), ["--set-task", "there is none"]),
        (measures("rte", settings=["epochs"]), ["'epochs' has no value"]),
        (measures("rte", settings=["epoch=1"]), ["epoch"]),
        (measures("rte", data="/nowhere"), ["'/nowhere' does not exist"]),
        (measures(data="tasks"), ["SST-2"]),
        (measures("cola", data="tasks"), ["CoLA"]),
        (measures("rte", data="tasks"), ["RTE has no labelled split to score"]),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_searches_that_cannot_be(run, recipe, asked, tmp_path, monkeypatch, options, parts):
    monkeypatch.chdir(tmp_path)
    changes, options = ([], options) if isinstance(options, dict) else (options, {})
    if "short.txt" in str(changes):
        (tmp_path / "short.txt").write_text("\n\n".join(f"one line of text number {n} and no more" for n in range(12)))
    if "measures" in options:
        data = write_tasks(tmp_path / "tasks") / "RTE"
        for split in ("train", "dev"):
            (data / f"{split}.tsv").unlink()
        (data / "test.tsv").write_text("index\tsentence1\tsentence2\n0\tone text\tanother\n")
    with pytest.raises(LimbeckError) as caught:
        run(
            load_recipe(recipe, changes),
            **{name: value() if callable(value) else value for name, value in options.items()},
        )
    line = str(caught.value)
    assert "\n" not in line and all(part in line for part in parts), line
    assert not asked.batches, "nothing is trained"


def test_teacher_layers_that_leave_no_mapping(run, files, tmp_path):
    deep = searched.write_teacher(tmp_path, layers=12)
    with pytest.raises(LimbeckError, match=r"No layer mapping is left.*teacher layers 5 to 12.*\[1, 2\]"):
        run(recipe_data(deep, files[1]), teacher_layers=(1, 2))
