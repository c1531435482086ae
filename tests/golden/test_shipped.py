"""Folders of released versions are read and gone on with; `tests/fixtures/write_shipped.py` wrote them.

A run of version 0.1.0 is gone on with where it was written: it knows its text by path, size and time of change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file

from limbeck.models.loading import load_model
from tests.fixtures.write_shipped import FACTS, SHIPPED, arithmetic, place_of, put_back
from tests.support.commands import assert_one_line_error

VERSIONS = sorted(path for path in SHIPPED.iterdir() if path.is_dir())
_COMPLETE, _FAILED = 1, 3

pytestmark = pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)


@pytest.fixture
def placed(version: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A version's folder where it was written, which is the working folder; for one test at a time."""
    with place_of(version.name) as work:
        put_back(version, work)
        monkeypatch.chdir(work)
        yield work


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder, without the lock that says who had it last."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".run.lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def trials(folder: Path) -> list[dict[str, Any]]:
    """The ends of trials in a journal, in order."""
    lines = (folder / "search.journal").read_text(encoding="utf-8").splitlines()
    return [line for line in map(json.loads, lines) if line["op_code"] == 6]


_OF_A_SEARCH = ("best", "recipe", "identity")
#: By folder: the work in it, the record that its command writes again, and the keys of it that stay.
DONE: dict[str, tuple[Callable[[Path], object], str, tuple[str, ...]]] = {
    "search-mapping": (trials, "search.json", (*_OF_A_SEARCH, "generations")),
    "search-architecture": (trials, "search.json", (*_OF_A_SEARCH, "shapes")),
    "search-teacher-layer": (trials, "search.json", (*_OF_A_SEARCH, "layers")),
    "comparison": (lambda folder: contents(folder / "runs"), "comparison_table.json", ()),
    "evaluation": (lambda folder: contents(folder)["results.jsonl"], "evaluation_table.json", ()),
}


def same_arithmetic(version: Path) -> bool:
    return bool(read(version / FACTS)["arithmetic"] == arithmetic())


def command(version: Path, name: str) -> list[str]:
    """The command that wrote a folder."""
    return [*read(version / FACTS)["commands"][name], "--quiet"]


def kept(old: Any, new: Any) -> bool:
    """Whether all of an older record is in a newer one, but for ranks, which one seed does not give any more."""
    if isinstance(old, dict):
        return all(key in new and kept(value, new[key]) for key, value in old.items() if key != "rank")
    if isinstance(old, list):
        return len(old) == len(new) and all(map(kept, old, new))
    return bool(old == new)


def test_a_finished_run_is_taken_as_it_is(limbeck, placed):
    before = contents(placed / "finished")
    told = limbeck.json("distill", "recipe.yaml", "--output", "finished", "--resume", "--quiet")
    assert told == {"student": "finished/student", "metrics": read(placed / "finished" / "run.json")["evaluation"]}
    assert contents(placed / "finished") | {"recipe.yaml": before["recipe.yaml"]} == before


def lacks_positive_class(task_file: Path) -> bool:
    """Whether a task file is of a version in which f1 was that of the second of two classes."""
    return "positive:" not in task_file.read_text(encoding="utf-8")


def test_a_task_file_that_does_not_say_whose_f1_it_means_is_refused(limbeck, placed, version):
    if not lacks_positive_class(placed / "task.yaml"):
        return
    message = assert_one_line_error(limbeck(*command(version, "evaluation")), 2)
    assert "task.yaml': metric: f1 is that of one class: name that class (positive: NAME)" in message


@pytest.mark.parametrize("name", DONE)
def test_what_is_finished_is_not_done_again(limbeck, placed, version, name):
    if name == "evaluation" and lacks_positive_class(placed / "task.yaml"):
        # With the class that f1 was of, the cells are those that are there.
        with (placed / "task.yaml").open("a", encoding="utf-8") as file:
            file.write("positive: good\n")
    work_of, file, keys = DONE[name]
    work, record = work_of(placed / name), read(placed / name / file)
    told = limbeck.json(*command(version, name))
    assert not told.get("failed") and not told.get("impossible")
    assert work and work_of(placed / name) == work
    again = read(placed / name / file)
    # Notes in short are words of the version that wrote the table last.
    compared = set(keys or record) - {"notes_in_short"}
    assert [key for key in compared if not kept(record[key], again[key])] == []


def test_a_killed_run_ends_as_the_one_that_was_not(limbeck, placed, version):
    killed, whole = placed / "killed", placed / "finished"
    log = killed / "stages" / "2-hidden_states" / "log.jsonl"
    first, logged = contents(killed / "stages" / "1-minilmv2"), log.read_text(encoding="utf-8")
    limbeck.shown("distill", "--resume", "--output", "killed", "--quiet")
    assert read(killed / "run.json")["status"] == "finished"
    assert contents(killed / "stages" / "1-minilmv2") == first, "the stage that was finished is not trained again"
    assert log.read_text(encoding="utf-8").startswith(logged), "the other goes on from its checkpoint"
    found, expected = (load_file(run / "student" / "model.safetensors") for run in (killed, whole))
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].shape == tensor.shape and bool(found[name].isfinite().all())
        if same_arithmetic(version):
            assert torch.equal(found[name], tensor), name


def test_a_killed_search_ends_as_the_one_that_was_not(limbeck, placed, version):
    whole, told = read(placed / "search-mapping" / "search.json"), trials(placed / "search-killed")
    journal = placed / "search-killed" / "search.journal"
    signs = journal.read_text(encoding="utf-8")
    assert '"interval":15.0' in signs
    # The worker was on another machine, whose death only shows in signs of life that stay away: for a minute.
    journal.write_text(signs.replace('"interval":15.0', '"interval":0.1'), encoding="utf-8")
    assert [trial["state"] for trial in told] == [_COMPLETE] * 3
    record = limbeck.json(*command(version, "search-killed"))
    assert record["status"] == "finished" and record["identity"] == whole["identity"]
    ended = trials(placed / "search-killed")
    assert ended[:3] == told and [trial["state"] for trial in ended].count(_FAILED) == 1
    assert record["generations"][0]["members"] == whole["generations"][0]["members"]
    if same_arithmetic(version):
        assert record["generations"] == whole["generations"]


@pytest.mark.parametrize(("name", "tolerance"), [("export-safetensors", 5e-3), ("export-sentence-transformers", 0.0)])
def test_exported_weights_are_the_students(version, name, tolerance):
    exported, student = load_model(version / name).float(), load_model(version / "finished" / "student").float()
    with torch.no_grad():
        found, expected = (model(**_tokens()).last_hidden_state for model in (exported, student))
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("name", "file"), [("export-onnx", "model"), ("export-onnx-int8", "model_quantized")])
def test_exported_graphs_run(version, name, file):
    session = onnxruntime.InferenceSession(version / name / "onnx" / f"{file}.onnx")
    given = {key: value.numpy() for key, value in _tokens().items()}
    [found, *_] = session.run(None, {one.name: given[one.name] for one in session.get_inputs()})
    with torch.no_grad():
        expected = load_model(version / "finished" / "student").float()(**_tokens()).last_hidden_state.numpy()
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < (1e-4 if name == "export-onnx" else 0.5)


def test_an_export_is_known_as_one_of_ours(limbeck, placed):
    asked = ("export", "finished", "--format", "safetensors", "--dtype", "float16", "--output", "export-safetensors")
    before = contents(placed / "export-safetensors")
    refused = limbeck(*asked, "--quiet")
    assert_one_line_error(refused, 2, "--overwrite")
    assert contents(placed / "export-safetensors") == before
    limbeck.shown(*asked, "--quiet", "--overwrite")
    after = contents(placed / "export-safetensors")
    assert after.keys() == before.keys() and after["model.safetensors"] == before["model.safetensors"]


def _tokens() -> dict[str, torch.Tensor]:
    ids = torch.tensor([[2, 6, 7, 8, 9, 3], [2, 10, 11, 3, 0, 0]])
    return {"input_ids": ids, "token_type_ids": torch.zeros_like(ids), "attention_mask": (ids != 0).long()}
