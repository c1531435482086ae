"""What cannot be searched is refused in a line, before anything is trained; the cases stand in `refusals.yaml`."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml
from optuna.study import get_all_study_names

from limbeck.errors import LimbeckError, OutputError, RecipeError
from limbeck.recipe.load import load_recipe
from limbeck.search import GeneticSettings, elm_space
from limbeck.search.requests import MeasuringRequest, ShapeLimits, task_measures
from limbeck.search.storage import open_storage
from tests.support import mapping_search, shape_search, teacher_layer_search
from tests.support.corpora import write_text
from tests.support.known_search import open_known
from tests.support.task_files import write_tasks

KINDS = (mapping_search, shape_search, teacher_layer_search)
CASES = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text(encoding="utf-8"))
#: How options are made of plain values.
READ = {
    "limits": lambda values: ShapeLimits(**values),
    "measuring": lambda values: MeasuringRequest(**values),
    "sizes": lambda values: dataclasses.replace(shape_search.SMALL["sizes"], **values),
    "measures": lambda values: task_measures(**{"tasks": None, "preset": "quick", "seeds": 1, **values}),
}


def request_of(kind, recipe, output, case):
    """The request of a small search, changed as the case says."""
    changes = [given for given in case[1:] if isinstance(given, str)]
    [given] = [given for given in case[1:] if isinstance(given, dict)] or [{}]
    options = {name: READ[name](value) if name in READ else value for name, value in given.items()}
    return kind.make_request(load_recipe(recipe, changes), output, **{**kind.SMALL, **options})


def refused(case, act, expected=RecipeError):
    """The class and the line that an action is refused with, which have all parts of the case's."""
    with pytest.raises(expected) as caught:
        act()
    line = f"{type(caught.value).__name__}: {caught.value}"
    assert all(part in line for part in case[0].split(" … ")), line
    return line


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with labelled rows, too little text, and tasks, of which one has no labels to score by."""
    folder = tmp_path_factory.mktemp("inputs")
    rows = [{"text": f"text {number}", "label": number % 2} for number in range(30)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "short.txt").write_text("\n\n".join(f"one line of text number {n} and no more" for n in range(12)))
    data = write_tasks(folder / "tasks") / "RTE"
    for split in ("train", "dev"):
        (data / f"{split}.tsv").unlink()
    (data / "test.tsv").write_text("index\tsentence1\tsentence2\n0\tone text\tanother\n")
    return folder


@pytest.mark.parametrize(
    ("kind", "group", "case"),
    [
        pytest.param(kind, group, case, id=f"{kind.NAME}-{case[0][:40]}")
        for kind in KINDS
        for group in ("requests", "inputs")
        for case in (*CASES[group]["any"], *CASES[group][kind.NAME])
    ],
    indirect=["kind"],
)
def test_searches(kind, group, case, recipe, calls, inputs, tmp_path, monkeypatch):
    monkeypatch.chdir(inputs)
    monkeypatch.setattr("limbeck.search.storage.time.sleep", lambda seconds: None)
    output = tmp_path / "out"
    expected = RecipeError if group == "requests" else LimbeckError
    refused(case, lambda: kind.search(request_of(kind, recipe, output, case)), expected)
    assert not calls.batches and output.exists() == (group == "inputs")
    assert get_all_study_names(open_storage(output / "search.journal")) == []


@pytest.mark.parametrize("kind", KINDS, indirect=True, ids=lambda kind: kind.NAME)
def test_studies_of_another_run_are_left_alone(kind, recipe, calls, study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "other", 20)
    kind.write_teacher(tmp_path / "made", seed=9).rename(tmp_path / "another")
    kind.search(request_of(kind, recipe, Path("out"), [""]))
    before, tried = study(), list(calls.tried)
    for case in (*CASES["studies"]["any"], *CASES["studies"][kind.NAME]):
        line = refused(case, lambda: kind.search(request_of(kind, recipe, Path("out"), case)), OutputError)  # noqa: B023
        assert line.endswith("or give another --output (in a shared storage, another --name).")
    after = study()
    assert (after.trials, after.user_attrs, calls.tried) == (before.trials, before.user_attrs, tried)
    same = kind.write_teacher(tmp_path / "same")
    kind.search(request_of(kind, recipe, Path("out"), ["", f"teacher.model={same}"]))
    assert calls.tried == tried, "the same teacher in another place"


@pytest.mark.parametrize("case", CASES["genetic settings"], ids=str)
def test_genetic_settings(case):
    refused(case, lambda: GeneticSettings(**case[1]))


@pytest.mark.parametrize("case", CASES["spaces of mappings"], ids=str)
def test_spaces_of_mappings(case):
    refused(case, lambda: elm_space(**case[1]))


@pytest.mark.parametrize("case", CASES["storages"], ids=str)
def test_storages(case, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.db").write_text("no database at all, " * 100)
    monkeypatch.setattr("limbeck.search.storage.time.sleep", lambda seconds: None)
    assert "secret" not in refused(case, lambda: open_known(case[1]["place"]), LimbeckError)
