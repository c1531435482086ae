"""`limbeck evaluate` as a user types it: tables, files, restarts, failures."""

import json
from pathlib import Path

import pytest

import limbeck as package
from limbeck.evaluation.evaluators.fine_tuned import train_once
from tests.fixtures.write_shipped import SHIPPED
from tests.support.commands import assert_one_line_error
from tests.support.models import make_teacher
from tests.support.task_files import RTE, glue_table, squad, write_tasks
from tests.support.tasks import make_rows

SMALL = ("--preset", "quick", "--set", "length=32", "--set", "epochs=1", "--set", "batch_size=8", "--set",
         "max_scored_rows=null", "--quiet")  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A GLUE folder with RTE, and SQuAD 1.1."""
    folder = write_tasks(tmp_path_factory.mktemp("data"))
    unlabelled = glue_table(make_rows("classification", 5, 2), labelled=False)
    (folder / "RTE" / "test.tsv").write_text(unlabelled, encoding="utf-8")
    for split, count in (("train", 12), ("dev", 6)):
        (folder / f"{split}-v1.1.json").write_text(squad(make_rows("question_answering", count, 3)), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> list[Path]:
    """A teacher and a student: 3 and 2 layers of width 32."""
    return [
        make_teacher(tmp_path_factory.mktemp("model"), "bert", seed=layers, layers=layers, hidden=32, heads=4, ffn=64)
        for layers in (3, 2)
    ]


@pytest.fixture
def trained(monkeypatch):
    """The cells that are really run; what is in `stops` is a seed at which Ctrl-C is pressed."""
    cells_run, stops = [], []

    def train(cells, report):
        if cells[0].cell.seed in stops:
            raise KeyboardInterrupt
        cells_run.extend(cell.cell for cell in cells)
        return train_once(cells, report)

    monkeypatch.setattr("limbeck.evaluation.evaluators.fine_tuned.train_once", train)
    return cells_run, stops


def rows_of(output):
    return [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]


def test_from_folders_to_tables(limbeck, data, models, tmp_path):
    output, (teacher, student) = tmp_path / "out", map(str, models)
    printed = limbeck.json("evaluate", student, "--teacher", teacher, "--tasks", "rte,squad", "--data", data, "--seeds",
                           2, "--output", output, *SMALL, "--set", "squad.stride=8")  # fmt: skip
    rows = rows_of(output)
    assert [row["status"] for row in rows] == ["finished"] * 2 * 2 * 2
    for row in rows:
        assert row["seconds"] > 0 and row["versions"]["transformers"] and row["rows"]["train"] in (12, 16)
        assert row["settings"]["learning_rate"] == 5e-5 and row["settings"]["epochs"] == 1
        given = row["training_arguments"]
        assert given["num_train_epochs"] == 1 and given["seed"] == row["seed"] and "learning_rate" not in given
    summary = printed["summary"]
    assert [model["name"] for model in summary["models"]] == [teacher, student]
    own = [row["scores"]["validation"]["accuracy"] for row in rows if (row["model"], row["task"]) == (student, "rte")]
    cell = summary["models"][1]["columns"]["rte"]
    assert (cell["mean"], cell["runs"]) == (pytest.approx(50 * sum(own)), pytest.approx([100 * score for score in own]))
    kept = summary["models"][1]["retention"]["rte"]
    assert kept == pytest.approx(100 * cell["mean"] / summary["models"][0]["columns"]["rte"]["mean"])
    assert any("RTE train: 16 rows (the published set has 2,490)" in note for note in summary["notes"])
    assert "| RTE (accuracy) | SQuAD 1.1 (answer F1) |" in (output / "evaluation_table.md").read_text()
    assert json.loads((output / "evaluation_table.json").read_text()) == summary
    submitted = next((output / "submissions").rglob("RTE.tsv"))
    lines = submitted.read_text().splitlines()
    assert len(lines) == 6 and lines[1].split("\t")[1] in RTE
    assert str(submitted) in printed["files"]


def test_a_restart_runs_only_what_is_missing_of_the_same_evaluation(limbeck, data, models, tmp_path, trained):
    output, (cells_run, stops) = tmp_path / "out", trained
    command = ["evaluate", models[1], "--tasks", "rte", "--data", data, "--output", output, *SMALL]

    def seeds_run(*more):
        before = len(cells_run)
        limbeck.shown(*command, *more)
        return [cell.seed for cell in cells_run[before:]]

    assert (seeds_run(), seeds_run()) == ([1], [])
    stops.append(3)
    assert_one_line_error(
        limbeck(*command, "--seeds", 3), 1, "1 of 2 measurements are done", "run the same command again to continue"
    )
    assert [row["seed"] for row in rows_of(output)] == [1, 2]
    stops.clear()
    assert seeds_run("--seeds", 3) == [3]
    path = output / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    assert seeds_run("--seeds", 3) == [3], "the last line was torn"
    before = path.read_bytes()
    assert_one_line_error(limbeck(*command, "--preset", "elm"), 2, "--preset quick, but now it is elm", "--output")
    (tmp_path / "wrong" / "RTE").mkdir(parents=True)
    (tmp_path / "wrong" / "RTE" / "train.tsv").write_text("a\tb\n1\t2\n")
    assert_one_line_error(limbeck(*command, "--data", tmp_path / "wrong"), 2, "sentence1")
    assert path.read_bytes() == before


def test_a_cell_that_fails_leaves_the_others(limbeck, data, models, tmp_path, trained):
    short = make_teacher(tmp_path, "bert", layers=2, hidden=32, heads=4, ffn=64, max_position_embeddings=16)
    output = tmp_path / "out"
    command = ["evaluate", models[1], short, "--tasks", "rte", "--data", data, "--output", output, *SMALL]
    done = limbeck(*command)
    assert done.returncode == 1
    assert "1 measurement failed" in " ".join(done.stdout.split())
    errors = {row["model"]: row.get("error") for row in rows_of(output)}
    assert errors == {str(models[1]): None, str(short): f"'{short}' takes 16 tokens, not 32; give --set length=16."}
    assert limbeck(*command).returncode == 1
    assert len(trained[0]) == 3, "only the failed cell is tried again"


def test_an_own_task_and_the_python_function(models, tmp_path):
    for name in ("train.tsv", "validation.tsv"):
        (tmp_path / name).write_bytes((SHIPPED / "0.1.0" / name).read_bytes())
    task = tmp_path / "task.yaml"
    task.write_text((SHIPPED / "0.1.0" / "task.yaml").read_text() + "positive: bad\n")
    result = package.evaluate([models[1]], str(task), output=tmp_path / "out", preset="quick",
                              overrides=["moods.epochs=1", "length=16"])  # fmt: skip
    assert result.failed == 0
    assert 0 <= result.summary["models"][0]["columns"]["moods"]["mean"] <= 100
    assert [path.suffix for path in result.files] == [".md", ".csv", ".json"]
    assert result.summary["columns"][0]["positive"] == "bad"
    assert "| moods | F1 (positive: bad) |" in result.files[0].read_text()


def test_costs(limbeck, models, tmp_path):
    teacher, student = map(str, models)
    printed = limbeck.json("evaluate", student, "--teacher", teacher, "--speed", "--batch-sizes", "1,2", "--lengths",
                           "8", "--seconds", "0.05", "--output", tmp_path / "out", "--quiet")  # fmt: skip
    costs = printed["costs"]
    assert [(size["model"], size["megabytes_of"]) for size in costs["models"]] == [
        (teacher, "files"),
        (student, "files"),
    ]
    blocks = [size["transformer_parameters"] for size in costs["models"]]
    assert blocks[0] == pytest.approx(1.5 * blocks[1]), "three blocks and two"
    timed = [(row["model"], row["batch"]) for row in costs["timings"]]
    assert sorted(timed) == sorted((model, batch) for model in (teacher, student) for batch in (1, 2))
