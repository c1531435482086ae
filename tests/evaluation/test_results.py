"""`results.jsonl` survives what kills a process, and a folder belongs to one evaluation."""

import json

import pytest

from limbeck.core.studies import EvaluationCell
from limbeck.errors import OutputError, RecipeError
from limbeck.evaluation.grid import MANIFEST, RESULTS, ResultsFile, prepare_folder
from limbeck.evaluation.grid_plan import parse_overrides


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


def test_a_folder_takes_one_preset_and_its_settings(tmp_path):
    folder = prepare_folder(tmp_path / "new", preset="quick", overrides=["epochs=1"])
    assert json.loads((folder / MANIFEST).read_text()) == {"preset": "quick", "set": ["epochs=1"]}
    ResultsFile(folder).append(EvaluationCell(id="a", status="failed", error="x"))
    assert prepare_folder(folder, preset="quick", overrides=["epochs=1"]) == folder
    with pytest.raises(OutputError, match="--preset quick, not elm"):
        prepare_folder(folder, preset="elm", overrides=["epochs=1"])
    with pytest.raises(OutputError, match="--set epochs=1, not nothing"):
        prepare_folder(folder, preset="quick", overrides=[])


def test_a_folder_without_cells_is_bound_anew(tmp_path):
    for preset, overrides in (("quick", ["epochs=1"]), ("elm", [])):
        folder = prepare_folder(tmp_path / "new", preset=preset, overrides=overrides)
        assert json.loads((folder / MANIFEST).read_text()) == {"preset": preset, "set": overrides}
    (folder / MANIFEST).write_text("[]")
    with pytest.raises(OutputError, match="cannot be read"):
        prepare_folder(folder, preset="elm", overrides=[])


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(OutputError, match="holds no evaluation"):
        prepare_folder(tmp_path, preset="quick", overrides=[])
    with pytest.raises(OutputError, match="is a file"):
        prepare_folder(tmp_path / "thesis.tex", preset="quick", overrides=[])
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(OutputError, match="cannot be read"):
        prepare_folder(tmp_path, preset="quick", overrides=[])


def test_overrides_are_of_all_tasks_or_of_one():
    found = parse_overrides(["epochs=[3, 5]", "cola.learning_rates=1e-4", "bf16=true"], ["cola", "rte"])
    assert found == [(None, {"epochs": [3, 5]}), ("cola", {"learning_rates": 1e-4}), (None, {"bf16": True})]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("epochs", ["has no value"]),
        ("epoch=3", ["no setting 'epoch'", "Did you mean 'epochs'"]),
        ("colla.epochs=3", ["'colla' is not among the tasks", "Did you mean 'cola'"]),
        ("epochs=[3", ["not valid YAML"]),
    ],
)
def test_overrides_that_mean_nothing(text, parts):
    with pytest.raises(RecipeError) as caught:
        parse_overrides([text], ["cola", "rte"])
    for part in parts:
        assert part in str(caught.value)
