"""Grid points, notes and leaderboard files; `results.jsonl` survives kills, and a folder belongs to one evaluation."""

import json
import statistics

import pytest

from limbeck.core.paths import EVALUATION_REQUEST, RESULTS
from limbeck.core.studies import Column, ColumnFigure, EvaluationCell, Figure
from limbeck.errors import OutputError, RecipeError
from limbeck.evaluation.plan.planner import Planner
from limbeck.evaluation.plan.request import EvaluationRequest, fine_tuned_task
from limbeck.evaluation.protocols.overrides import parse_overrides
from limbeck.evaluation.protocols.protocol import PROTOCOLS
from limbeck.evaluation.results.averages import average, averages_of
from limbeck.evaluation.results.choices import choose
from limbeck.evaluation.results.notes import gather_notes, without_sizes_of_draws
from limbeck.evaluation.results.predictions import save_predictions
from limbeck.evaluation.results.submissions import folder_names, write_submissions
from limbeck.evaluation.run.output_folder import prepare_folder
from limbeck.evaluation.run.results_file import ResultsFile
from limbeck.evaluation.tasks.registry import TASKS


def row(rate, seed, value, **scores):
    settings = {"learning_rate": rate, "epochs": 3}
    scores = {"validation": {"accuracy": value, "f1": 1 - value, **scores}}
    return EvaluationCell(settings=settings, seed=seed, select="validation", scores=scores)


ONE_BETTER = [row(1e-5, 1, 0.9), row(1e-5, 2, 0.5), row(2e-5, 1, 0.8), row(2e-5, 2, 0.7)]


@pytest.mark.parametrize(
    ("rows", "changes", "rate", "seeds"),
    [
        (ONE_BETTER, {}, 2e-5, [1, 2]),
        (ONE_BETTER, {"pick": "best"}, 1e-5, [1]),
        # Points that lack runs are skipped, and ties go to the first.
        ([row(1e-5, 1, 0.9), row(2e-5, 2, 0.6), row(2e-5, 1, 0.6), row(3e-5, 1, 0.6), row(3e-5, 2, 0.6)], {},
         2e-5, [1, 2]),
        ([row(1e-5, 1, 0.9), row(2e-5, 1, 0.2)], {"metric": "f1"}, 2e-5, [1]),
    ],
    ids=["mean over seeds", "one best run", "runs that lack", "metric"],
)  # fmt: skip
def test_the_grid_point_that_stands_for_a_model(rows, changes, rate, seeds):
    settings = PROTOCOLS["minilmv2"].settings(TASKS["mrpc"]).model_copy(update=changes)
    chosen = choose(rows, TASKS["mrpc"], settings, 2)
    assert chosen.cells[0].settings["learning_rate"] == rate and [cell.seed for cell in chosen.cells] == seeds
    assert chosen.points == len({cell.settings["learning_rate"] for cell in rows})
    assert chosen.wanted == (1 if changes.get("pick") else 2)


def test_mean_and_sample_deviation():
    figure = Figure.of_runs([50.0, 60.0, 80.0])
    assert figure.mean == pytest.approx(63.3333333)
    assert figure.deviation == pytest.approx(statistics.stdev([50, 60, 80]))
    assert Figure.of_runs([50.0]).deviation is None


@pytest.mark.parametrize(("second", "runs"), [([70.0, 90.0], [60.0, 75.0]), ([70.0], [62.5])])
def test_averages_are_taken_run_by_run_where_they_can_be(second, runs):
    scores = {"a": Figure.of_runs([50.0, 60.0]), "b": Figure.of_runs(second)}
    found = average(["a", "b"], scores, 2)
    assert found.runs == runs and found.complete
    assert (found.deviation is None) == (len(runs) == 1)
    assert average(["a"], scores, 2) is None


def test_a_line_for_each_kind():
    assert gather_notes(
        [
            "RTE train: 24 rows (the published set has 2,490)",
            "MNLI train: 3 rows (the published set has 392,702)",
            "RTE train: 1,024 x row cut to the longest length (such as row 17)",
            "AX: no test file found",
            "XNLI: no test.ar, test.bg files found",
            "MNLI train: 3 rows (the published set has 392,702)",
            "MNLI validation_matched: 1,024 x row cut to the longest length (such as row 1, row 9)",
            "QNLI train: 2 x row cut to the longest length (such as row 1, row 9)",
        ]
    ) == [
        "RTE train: 24 rows (the published set has 2,490); also incomplete: MNLI train: 3 rows",
        "RTE train: 1,024 x row cut to the longest length (such as row 17); likewise MNLI validation_matched",
        "AX: no test file found; likewise XNLI",
        "QNLI train: 2 x row cut to the longest length (such as row 1, row 9)",
    ]


def test_splits_with_other_numbers_of_rows_have_lines_of_their_own():
    notes = ["reviews train: 1,000 rows", "reviews validation: 300 rows", "moods train: 1,000 rows"]
    assert gather_notes(notes) == ["reviews train: 1,000 rows; likewise moods train", "reviews validation: 300 rows"]


def test_the_size_of_a_split_is_told_once_where_rows_are_drawn():
    draws = ["chunk train: 400 of 800 rows, drawn", "questions test: 6 of 80 queries (30 pairs), drawn"]
    sizes = ["chunk train: 800 rows", "questions test: 80 queries (400 pairs)"]
    others = ["chunk test: 800 rows", "chunk train: 2 x row without a word", "mine: 3 of 80 rows"]
    assert without_sizes_of_draws([*sizes, *others, *draws]) == [*others, *draws]
    published = "MRPC train: 100 rows (the published set has 3,668)"
    assert without_sizes_of_draws([published, "MRPC train: 40 of 100 rows, drawn"])[0] == published


def test_many_subjects_are_counted_and_a_single_note_stays_as_it_is():
    notes = [f"Task {letter}: 7 rows" for letter in "abcdef"]
    assert gather_notes(notes) == ["Task a: 7 rows; likewise Task b, Task c, Task d and 2 more"]
    assert gather_notes(["no subject at all"]) == ["no subject at all"]
    assert gather_notes([]) == []


RTE = TASKS["rte"]


@pytest.fixture
def predicted(tmp_path):
    saved = save_predictions(tmp_path, "a", {"test": [0, 1, 1]})
    return [EvaluationCell(predictions=saved, select="validation", scores={"validation": {"accuracy": 0.5}})]


def test_the_best_run_is_written(tmp_path, predicted):
    (path,) = write_submissions(tmp_path, "org-model", RTE, predicted, "accuracy")
    assert path == tmp_path / "submissions" / "org-model" / "RTE.tsv"
    first, second = RTE.labels
    assert [line.split("\t")[1] for line in path.read_text().splitlines()[1:]] == [first, second, second]


def test_each_model_has_a_folder_of_its_own():
    names = folder_names(["org/model", "./student", "../student", "Student", "a-b", "a/b", "a/b-2", ".."])
    assert list(names.values()) == [
        *("org-model", "student", "student-2", "Student-3"),
        *("a-b", "a-b-2", "a-b-2-2", "model"),
    ]


def test_a_file_that_cannot_be_written_is_named_in_one_line(tmp_path, predicted):
    (tmp_path / "submissions").write_text("")
    with pytest.raises(OutputError, match=r"submissions/model/RTE\.tsv' cannot be written: "):
        write_submissions(tmp_path, "model", RTE, predicted, "accuracy")
    (tmp_path / "new").write_text("")
    with pytest.raises(OutputError, match=r"new/predictions/a\.json' cannot be written: "):
        save_predictions(tmp_path / "new", "a", {"test": [0, 1, 1]})


@pytest.mark.parametrize("content", ["{", "[]", "7", '{"test": 3}', '{"test": {"a": 1}}'])
def test_damaged_predictions(tmp_path, predicted, content):
    (tmp_path / predicted[0].predictions).write_text(content)
    with pytest.raises(OutputError, match="a.json' is damaged"):
        write_submissions(tmp_path, "model", RTE, predicted, "accuracy")


def test_missing_predictions(tmp_path, predicted):
    (tmp_path / predicted[0].predictions).unlink()
    with pytest.raises(OutputError, match="a.json' is missing"):
        write_submissions(tmp_path, "model", RTE, predicted, "accuracy")


def test_rows_come_back_and_the_finished_are_known(tmp_path):
    results = ResultsFile(tmp_path)
    assert results.read() == []
    results.append(EvaluationCell(id="a", status="failed", error="x"))
    results.append(EvaluationCell(id="b", status="finished", scores={}))
    assert [cell.id for cell in ResultsFile(tmp_path).read()] == ["a", "b"]
    assert set(results.finished()) == {"b"}


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_last_line_costs_that_line_only(tmp_path, cut):
    results = ResultsFile(tmp_path)
    results.append(EvaluationCell(id="a", status="finished"))
    results.append(EvaluationCell(id="b", status="finished"))
    path = tmp_path / RESULTS
    path.write_bytes(path.read_bytes()[:-cut])
    kept = {"a"} if cut > 1 else {"a", "b"}
    assert set(results.finished()) == kept
    results.append(EvaluationCell(id="c", status="finished"))
    assert set(results.finished()) == kept | {"c"}


def test_a_score_that_no_metric_gives_is_no_row(tmp_path):
    results = ResultsFile(tmp_path)
    for name, scores in (("a", {"f1": 0.5, "best_f1_threshold": -7.0}), ("b", {"f1": 9.5})):
        results.append(EvaluationCell(id=name, status="finished", scores={"validation": scores}))
    assert set(results.finished()) == {"a"}


def test_a_folder_takes_one_preset_and_its_settings(tmp_path):
    folder = prepare_folder(tmp_path / "new", preset="quick", overrides=["epochs=1"])
    assert json.loads((folder / EVALUATION_REQUEST).read_text()) == {"preset": "quick", "set": ["epochs=1"]}
    ResultsFile(folder).append(EvaluationCell(id="a", status="failed", error="x"))
    assert prepare_folder(folder, preset="quick", overrides=["epochs=1"]) == folder
    with pytest.raises(OutputError, match="--preset quick, but now it is elm"):
        prepare_folder(folder, preset="elm", overrides=["epochs=1"])
    with pytest.raises(OutputError, match="--set epochs=1, but now it is nothing"):
        prepare_folder(folder, preset="quick", overrides=[])


def test_a_folder_without_cells_is_bound_anew(tmp_path):
    for preset, overrides in (("quick", ["epochs=1"]), ("elm", [])):
        folder = prepare_folder(tmp_path / "new", preset=preset, overrides=overrides)
        assert json.loads((folder / EVALUATION_REQUEST).read_text()) == {"preset": preset, "set": overrides}
    (folder / EVALUATION_REQUEST).write_text("[]")
    with pytest.raises(OutputError, match="cannot be read"):
        prepare_folder(folder, preset="elm", overrides=[])


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(OutputError, match="holds no evaluation"):
        prepare_folder(tmp_path, preset="quick", overrides=[])
    with pytest.raises(OutputError, match="is a file"):
        prepare_folder(tmp_path / "thesis.tex", preset="quick", overrides=[])
    (tmp_path / EVALUATION_REQUEST).write_text("{")
    with pytest.raises(OutputError, match="cannot be read"):
        prepare_folder(tmp_path, preset="quick", overrides=[])


def test_a_model_is_fine_tuned_on_no_task_of_an_evaluator(tmp_path):
    with pytest.raises(RecipeError, match=r"'mteb:STS12' is scored by the evaluator 'mteb', and nothing is trained on"):
        fine_tuned_task(EvaluationRequest(("m",), "mteb:STS12", tmp_path / "out"))


def test_overrides_are_of_all_tasks_or_of_one():
    found = parse_overrides(["epochs=[3, 5]", "cola.learning_rates=1e-4", "bf16=true"], ["cola", "rte"])
    assert found == [(None, {"epochs": [3, 5]}), ("cola", {"learning_rates": 1e-4}), (None, {"bf16": True})]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("epochs", ["has no value"]),
        (".epochs=3", ["has no task before the dot"]),
        ("epoch=3", ["no setting 'epoch'", "Did you mean 'epochs'"]),
        ("colla.epochs=3", ["'colla' is not one of the tasks to evaluate", "Did you mean 'cola'"]),
        ("epochs=[3", ["not valid YAML"]),
        ("epochs=0", ["--set epochs", "give a number above 0"]),
        ("rte.learning_rates=[3]", ["--set learning_rates", "give 1 or less"]),
        ("keep=first", ["--set keep", "'last' or 'best_epoch'", "'first'"]),
        ("batch_size=many", ["--set batch_size", "'many'"]),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_read(tmp_path, text, parts):
    with pytest.raises(RecipeError) as caught:
        Planner(EvaluationRequest((), "cola,rte", tmp_path, overrides=(text,)))
    assert [part for part in parts if part not in str(caught.value)] == []


def test_the_splits_of_one_task_have_no_average():
    columns = [
        Column(key="own", title="Own (validation)", task="own", kind="classification", splits=["validation"]),
        Column(key="own:test", title="Own (test)", task="own", kind="classification", splits=["test"]),
    ]
    scores = {key: ColumnFigure.of_runs([value]) for key, value in (("own", 70.0), ("own:test", 80.0), ("rte", 60.0))}
    assert averages_of(scores, columns, PROTOCOLS["quick"]).average is None

    # Of two tasks, each counts once, by its first split.
    columns.append(Column(key="rte", title="RTE", task="rte", kind="classification", splits=["validation"]))
    found = averages_of(scores, columns, PROTOCOLS["quick"]).average
    assert (found.mean, found.of, found.complete) == (65.0, ["own", "rte"], True)
