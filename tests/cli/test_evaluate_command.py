"""`limbeck evaluate` as a user types it: tables, files, restarts, failures, one-line errors."""

import json
from pathlib import Path

import pytest

import limbeck as package
from limbeck.evaluation.fine_tuning import train_once
from tests.support.commands import assert_one_line_error
from tests.support.models import make_teacher
from tests.support.task_files import RTE, glue_table, squad
from tests.support.tasks import make_rows

SMALL = ("--preset", "quick", "--set", "length=32", "--set", "epochs=1", "--set", "batch_size=8", "--set",
         "max_scored_rows=null", "--quiet")  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A GLUE folder with RTE, and SQuAD 1.1."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "RTE").mkdir()
    for split, count, seed in (("train", 24, 0), ("dev", 12, 1), ("test", 5, 2)):
        rows = make_rows("classification", count, seed)
        (folder / "RTE" / f"{split}.tsv").write_text(glue_table(rows, split != "test"), encoding="utf-8")
    for split, count in (("train", 12), ("dev", 6)):
        (folder / f"{split}-v1.1.json").write_text(squad(make_rows("question_answering", count, 3)), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> tuple[Path, Path]:
    """A teacher and a student: 3 and 2 layers of width 32."""
    made = []
    for layers in (3, 2):
        parent = tmp_path_factory.mktemp(f"model-{layers}")
        made.append(make_teacher(parent, "bert", seed=layers, layers=layers, hidden=32, heads=4, ffn=64))
    return made[0], made[1]


@pytest.fixture
def count_runs(monkeypatch):
    """Count the cells that are really run."""
    done = []

    def counting(cells, report):
        done.extend(cell.cell for cell in cells)
        return train_once(cells, report)

    monkeypatch.setattr("limbeck.evaluation.grid.train_once", counting)
    return done


def rows_of(output):
    return [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]


def test_from_folders_to_tables(limbeck, data, models, tmp_path):
    output, (teacher, student) = tmp_path / "out", models
    done = limbeck("evaluate", student, "--teacher", teacher, "--tasks", "rte,squad", "--data", data, "--seeds", 2,
                   "--output", output, *SMALL, "--set", "squad.stride=8", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    printed = json.loads(done.stdout)
    rows = rows_of(output)
    assert len(rows) == 2 * 2 * 2
    assert {row["status"] for row in rows} == {"finished"}
    for row in rows:
        assert row["seconds"] > 0 and row["versions"]["transformers"] and row["rows"]["train"] in (12, 24)
        assert row["settings"]["learning_rate"] == 5e-5 and row["settings"]["epochs"] == 1
    summary = printed["summary"]
    assert [model["name"] for model in summary["models"]] == [str(teacher), str(student)]
    assert [column["title"] for column in summary["columns"]] == ["RTE", "SQuAD 1.1"]
    own = [
        row["scores"]["validation"]["accuracy"] for row in rows if (row["model"], row["task"]) == (str(student), "rte")
    ]
    cell = summary["models"][1]["columns"]["rte"]
    assert cell["mean"] == pytest.approx(50 * sum(own))
    assert cell["deviation"] == pytest.approx(100 * abs(own[0] - own[1]) / 2**0.5)
    kept = summary["models"][1]["retention"]["rte"]
    assert kept == pytest.approx(100 * cell["mean"] / summary["models"][0]["columns"]["rte"]["mean"])
    assert any("RTE train: 24 rows, but 2490 are published" in note for note in summary["notes"])
    markdown = (output / "evaluation_table.md").read_text()
    assert "| RTE (accuracy) | SQuAD 1.1 (F1) |" in markdown
    assert f"*% of {teacher}*" in markdown
    assert json.loads((output / "evaluation_table.json").read_text()) == summary
    assert (output / "evaluation_table.csv").read_text().startswith("source,model,column,metric,mean")
    submission = next((output / "submissions").rglob("RTE.tsv")).read_text().splitlines()
    assert len(submission) == 6 and submission[1].split("\t")[1] in RTE
    assert str(next((output / "submissions").rglob("RTE.tsv"))) in printed["files"]


def test_a_restart_runs_only_what_is_missing_of_the_same_evaluation(limbeck, data, models, tmp_path, count_runs):
    output, (_, student) = tmp_path / "out", models
    command = ["evaluate", student, "--tasks", "rte", "--data", data, "--output", output, *SMALL]
    assert limbeck(*command).returncode == 0
    assert len(count_runs) == 1
    again = limbeck(*command)
    assert again.returncode == 0 and len(count_runs) == 1
    assert "RTE" in again.stdout
    assert limbeck(*command, "--seeds", 3).returncode == 0
    assert [cell.seed for cell in count_runs] == [1, 2, 3]
    path = output / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    torn = limbeck(*command, "--seeds", 3)
    assert torn.returncode == 0, torn.stderr
    assert [cell.seed for cell in count_runs] == [1, 2, 3, 3]
    before = path.read_bytes()
    other = limbeck("evaluate", student, "--tasks", "rte", "--data", data, "--output", output, "--preset", "elm", "-q")
    assert_one_line_error(other, 2, "--preset quick, not elm", "--output")
    (tmp_path / "wrong" / "RTE").mkdir(parents=True)
    (tmp_path / "wrong" / "RTE" / "train.tsv").write_text("a\tb\n1\t2\n")
    command[command.index("--data") + 1] = tmp_path / "wrong"
    assert_one_line_error(limbeck(*command), 2, "sentence1")
    assert path.read_bytes() == before


def test_a_cell_that_fails_leaves_the_others(limbeck, data, models, tmp_path, count_runs):
    short = make_teacher(tmp_path, "bert", layers=2, hidden=32, heads=4, ffn=64, max_position_embeddings=16)
    output = tmp_path / "out"
    command = ["evaluate", models[1], short, "--tasks", "rte", "--data", data, "--output", output, *SMALL]
    done = limbeck(*command)
    assert done.returncode == 1
    assert "1 cell failed" in " ".join(done.stdout.split())
    finished, failed = sorted(rows_of(output), key=lambda row: row["status"], reverse=True)
    assert finished["status"] == "finished" and finished["model"] == str(models[1])
    assert failed["error"] == f"'{short}' takes 16 tokens, not 32; --set length=16."
    assert limbeck(*command).returncode == 1
    assert len(count_runs) == 3, "only the failed cell is tried again"


def test_ctrl_c_keeps_what_is_finished(limbeck, data, models, tmp_path, monkeypatch):
    output = tmp_path / "out"

    def stop_at_the_second(cells, report):
        if cells[0].cell.seed == 2:
            raise KeyboardInterrupt
        return train_once(cells, report)

    monkeypatch.setattr("limbeck.evaluation.grid.train_once", stop_at_the_second)
    done = limbeck("evaluate", models[1], "--tasks", "rte", "--data", data, "--seeds", 3, "--output", output, *SMALL)
    assert_one_line_error(done, 1, "1 of 3 cells are done", "goes on from there")
    assert [row["seed"] for row in rows_of(output)] == [1]


def test_an_own_task_and_the_python_function(data, models, tmp_path):
    rows = make_rows("classification", 30, 5)
    lines = ["sentence,verdict", *(f"{row.text},{('bad', 'good')[row.label]}" for row in rows)]
    (tmp_path / "mine.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ntype: classification\ncolumns: {text: sentence, label: verdict}\nlabels: [bad, good]\n"
        "metric: accuracy\nfiles: {train: mine.csv, validation: mine.csv}\n"
    )
    result = package.evaluate([models[1]], str(tmp_path / "mine.yaml"), output=tmp_path / "out", preset="quick",
                              overrides=["mine.epochs=1", "length=16"])  # fmt: skip
    assert result.failed == 0
    assert 0 <= result.summary["models"][0]["columns"]["mine"]["mean"] <= 100
    assert [path.suffix for path in result.files] == [".md", ".csv", ".json"]


def test_costs(limbeck, models, tmp_path):
    teacher, student = models
    done = limbeck("evaluate", student, "--teacher", teacher, "--speed", "--batch-sizes", "1,2", "--lengths", "8",
                   "--seconds", "0.05", "--output", tmp_path / "out", "--quiet", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    costs = json.loads(done.stdout)["costs"]
    sizes = {size["model"]: size for size in costs["models"]}
    block = 4 * 32 * 32 + 2 * 32 * 64
    # Two operations a weight and token; scores and their use are 4 x 8 tokens x width, in each of two blocks.
    assert sizes[str(student)]["megaflops_per_token"]["8"] == pytest.approx(2 * (2 * block + 4 * 8 * 32) / 1e6)
    assert sizes[str(teacher)]["transformer_parameters"] == pytest.approx(
        1.5 * sizes[str(student)]["transformer_parameters"]
    )
    assert sizes[str(student)]["megabytes_of"] == "files"
    assert {(row["model"], row["batch"]) for row in costs["timings"]} == {(str(m), b) for m in models for b in (1, 2)}
    markdown = (tmp_path / "out" / "evaluation_table.md").read_text()
    assert "## Size" in markdown and "## Speed on" in markdown


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--tasks", "rtee"], ["Unknown task 'rtee'", "Did you mean 'rte'"]),
        (["--tasks", "rte", "--preset", "minilm2"], ["Unknown preset 'minilm2'", "Did you mean"]),
        (["--tasks", "rte", "--set", "epoch=3"], ["no setting 'epoch'", "Did you mean 'epochs'"]),
        (["--tasks", "rte", "--set", "rte.metric=f1"], ["RTE is not scored by 'f1'", "accuracy"]),
        (["--tasks", "rte", "--data", "./nowhere"], ["'nowhere' does not exist"]),
        (["--tasks", "cola"], ["No file of the split 'train' of CoLA"]),
        (["--tasks", "none.yaml"], ["'none.yaml' does not exist"]),
        ([], ["give --tasks", "--speed"]),
        (["--tasks", "rte", "--teacher", "./gone"], ["no model folder './gone'"]),
    ],
)
def test_mistakes_give_one_line_and_exit_code_2(limbeck, data, models, tmp_path, arguments, parts):
    data_option = [] if "--data" in arguments else ["--data", data]
    done = limbeck("evaluate", models[1], *arguments, *data_option, "--output", tmp_path / "out", "--quiet")
    assert_one_line_error(done, 2, *parts)


def test_a_model_named_twice(limbeck, models, data, tmp_path):
    twice = limbeck("evaluate", models[1], models[1], "--tasks", "rte", "--data", data, "--output", tmp_path / "out")
    assert_one_line_error(twice, 2, "named twice")
