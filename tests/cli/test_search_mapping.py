"""`limbeck search mapping` as a user types it, with real students: tables, files, going on, one-line errors."""

import json
from pathlib import Path

import pytest
import yaml

from limbeck.cli.options import base_recipe, parse_layers
from limbeck.errors import RecipeError
from tests.support.commands import assert_one_line_error
from tests.support.corpora import write_text
from tests.support.mapping_search import recipe_data, write_teacher
from tests.support.task_files import write_tasks

SMALL = ("--steps", 2, "--share", 1, "--generations", 2, "--population", 3, "--quiet")
FILES = [
    "search.json", "recipe.yaml", "search.md", "generations.csv", "candidates.csv", "evolution.svg", "evolution.png",
    "distribution.svg", "distribution.png",
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    return write_teacher(folder, layers=4), write_text(folder / "text"), write_tasks(folder / "tasks")


@pytest.fixture
def recipe(files, tmp_path) -> Path:
    teacher, text, _ = files
    shape = {"shape": {"layers": 2, "hidden": 12, "heads": 2, "ffn": 16}}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe_data(teacher, text, student=shape)), encoding="utf-8")
    return path


def test_a_search_leaves_its_table_and_a_recipe_to_distil(limbeck, recipe, tmp_path):
    output = tmp_path / "out"
    command = ["search", "mapping", recipe, *SMALL, "--output", output]
    done = limbeck(*command)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "Optuna says nothing of its own"
    record = json.loads((output / "search.json").read_text())
    assert sorted(path.name for path in output.iterdir()) == sorted([*FILES, "search.journal"])
    for row in record["generations"]:
        assert row["best_gene"] in done.stdout and f"{row['maximum']:.2f}" in done.stdout
    assert f"Recipe: {output / 'recipe.yaml'}" in done.stdout
    found = yaml.safe_load((output / "recipe.yaml").read_text())
    assert found["stages"][0]["method"]["mapping"] == record["best"]["mapping"]
    assert found["stages"][0]["training"]["max_steps"] == 50 and found["output"] == "run"
    assert limbeck("validate", output / "recipe.yaml").returncode == 0
    printed = json.loads(limbeck(*command, "--generations", 3, "--json").stdout)
    assert printed["generations"][:2] == record["generations"] and len(printed["generations"]) == 3
    assert [Path(path).name for path in printed["files"]] == FILES


def test_with_tasks_and_options_alone(limbeck, files, tmp_path):
    teacher, text, tasks = files
    output = tmp_path / "out"
    done = limbeck(
        "search", "mapping", "--teacher", teacher, "--student", "2x24", "--corpus", text, "--method", "hidden_states",
        "--length", 32, "--batch-size", 8, "--seed", 5, "--set", "stages.0.training.bf16=false", "--tasks", "rte",
        "--data", tasks, "--set-task", "length=32", "--set-task", "epochs=1", "--teacher-layers", "1-3", *SMALL,
        "--generations", 1, "--output", output,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads((output / "search.json").read_text())
    assert record["scores"] == ["rte"] and record["identity"]["fitness.preset"] == "quick"
    assert record["identity"]["fitness.settings.epochs"] == 1 and record["identity"]["seed"] == 5
    assert all(0 <= candidate["fitness"] <= 100 for candidate in record["candidates"])
    assert {layer for candidate in record["candidates"] for layer in candidate["mapping"]} <= {0, 1, 2, 3}
    assert record["recipe"]["output"] == str(output / "run")
    assert "max_steps" not in record["recipe"]["stages"][0]["training"], "those were the proxy's"
    assert not (output / "candidates").exists()


@pytest.mark.slow
def test_two_workers_find_what_one_finds(limbeck, recipe, tmp_path):
    records = []
    for workers in (1, 2):
        output = tmp_path / f"out-{workers}"
        done = limbeck("search", "mapping", recipe, *SMALL, "--workers", workers, "--output", output)
        assert done.returncode == 0, done.stderr
        records.append(json.loads((output / "search.json").read_text()))
    one, two = records
    assert [row["members"] for row in one["generations"]] == [row["members"] for row in two["generations"]]
    for mine, other in zip(one["generations"], two["generations"], strict=True):
        assert mine["mean"] == pytest.approx(other["mean"], abs=0.01)


@pytest.mark.parametrize(
    ("options", "code", "parts"),
    [
        (["--parents", "bets"], 2, ["Unknown parents 'bets'", "Did you mean 'best'?"]),
        (["--flip", "2"], 2, ["flip 2.0", "0 to 1"]),
        (["--teacher-layers", "3-1"], 2, ["--teacher-layers '3-1'", "1-8,10"]),
        (["--storage", "postgres://somewhere/search"], 2, ["Unknown storage 'postgres'", "postgresql"]),
        (["--tasks", "sst2", "--data", "/nowhere"], 2, ["'/nowhere' does not exist"]),
        (["--set", "student.shape.layers=5"], 2, ["5", "4"]),
        (["--method", "minilmv2"], 2, ["'minilmv2' takes no layer mapping", "elm"]),
        (["--generations", "0"], 2, ["--generations 0"]),
    ],
)
def test_mistakes_are_one_line(limbeck, recipe, tmp_path, options, code, parts):
    done = limbeck("search", "mapping", recipe, *SMALL, "--output", tmp_path / "out", *options)
    assert_one_line_error(done, code, *parts)


def test_a_search_of_another_teacher_is_refused(limbeck, recipe, tmp_path):
    command = ["search", "mapping", recipe, *SMALL, "--generations", 1, "--output", tmp_path / "out"]
    assert limbeck(*command).returncode == 0
    before = (tmp_path / "out" / "search.json").read_text()
    other = write_teacher(tmp_path / "other", layers=4, seed=8)
    assert_one_line_error(limbeck(*command, "--teacher", other), 2, "another teacher", "another output")
    assert (tmp_path / "out" / "search.json").read_text() == before


def test_without_a_recipe_the_run_has_to_be_described(limbeck, tmp_path):
    done = limbeck("search", "mapping", "--output", tmp_path / "out")
    assert_one_line_error(done, 2, "--teacher, --student, --corpus, --method")


def test_layers_are_read():
    assert parse_layers("--teacher-layers", "1-4, 7,4,12") == [1, 2, 3, 4, 7, 12]
    for text in ("", "a", "1-", "-3", "4-2", "1,,2", "1-99999999999", "1.5", "²"):
        with pytest.raises(RecipeError, match="cannot be read"):
            parse_layers("--teacher-layers", text)


def test_the_searched_run_keeps_its_own_output(recipe, tmp_path):
    assert base_recipe(recipe, None, output=tmp_path / "out")["output"] == "run"
    data = yaml.safe_load(recipe.read_text())
    del data["output"]
    recipe.write_text(yaml.safe_dump(data))
    assert base_recipe(recipe, ["seed=9"], output=tmp_path / "out") == data | {
        "output": str(tmp_path / "out" / "run"), "seed": 9,
    }  # fmt: skip
