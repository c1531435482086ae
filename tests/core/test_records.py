"""Records: every one ever shipped is read and written again as it was; what is damaged is named and costs no more."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limbeck.core import exports, records, studies
from limbeck.core.records import File, Record, base, load, plain, save

TESTS = Path(__file__).parents[1]
FILES: tuple[type[File], ...] = (
    records.Run, records.Stage, records.Heartbeat, exports.Export, studies.Comparison, studies.Search,
    studies.EvaluationRequest, studies.Evaluation,
)  # fmt: skip
KINDS: dict[str, type[Record]] = {
    **{kind.FILE: kind for kind in FILES},
    "comparison_table.json": studies.ComparisonSummary,
    "results.jsonl": studies.EvaluationCell,
    **dict.fromkeys(["attention.json", "similarity.json", "contribution.json", "phrases.json"], studies.Inspection),
}


def _shipped() -> Iterator[tuple[str, type[Record], Any]]:
    for root in (TESTS / "fixtures/shipped", TESTS / "golden/folders"):
        for path in sorted(path for path in root.rglob("*.json*") if path.name in KINDS):
            lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
            yield from ((str(path.relative_to(TESTS)), KINDS[path.name], json.loads(line)) for line in lines)


SHIPPED = list(_shipped())


def test_every_kind_of_record_has_been_shipped_and_is_read_and_written_as_it_was() -> None:
    assert {Path(name).name for name, _, _ in SHIPPED} == set(KINDS)
    for name, kind, values in SHIPPED:
        record = kind.read(values, name)
        assert record.damage == (), name
        assert json.dumps(record.to_dict()) == json.dumps(values), name


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.text(max_size=5), children, max_size=2),
    max_leaves=4,
)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*place, key)
        yield from _places(item, (*place, key))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whatever_is_in_a_record_is_kept_or_named(data: st.DataObject) -> None:
    name, kind, values = data.draw(st.sampled_from(SHIPPED))
    values = deepcopy(values)
    changed = set()
    for _ in range(data.draw(st.integers(1, 3))):
        if not (places := list(_places(values))):
            break
        place = data.draw(st.sampled_from(places))
        changed.add(place[0])
        holder = values
        for key in place[:-1]:
            holder = holder[key]
        match data.draw(st.sampled_from(["change", "remove", "add"])):
            case "change":
                holder[place[-1]] = data.draw(JSON)
            case "remove":
                del holder[place[-1]]
            case "add" if isinstance(holder, dict):
                holder[data.draw(st.text(min_size=1, max_size=8))] = data.draw(JSON)
                changed |= {*values}
    record = kind.read(values, name)
    written = record.to_dict()
    assert (written == plain(values)) == (record.damage == ())
    assert all(line.isprintable() and line.startswith(f"'{name}'") for line in record.damage)
    for key in set(values) - changed:  # What is damaged costs nothing beside it.
        assert written[key] == plain(values[key])
    again = kind.read(written)
    assert (again.damage, again.to_dict()) == ((), written)


def test_damage_is_named_and_the_rest_is_there() -> None:
    run = records.Run.read(
        {
            "name": ["x"],
            "stages": [3, {"name": "a", "steps": "many", "layers": [{"student": [1, "b"], "teacher": [2]}]}],
            "timings": {"corpus": float("inf"), "total": 2},
            "student": {"shape": "bert 2x8", "parameters": True},
            "\x1b[2J": 1,
        },
        "run.json",
    )
    said = {line.partition(" is damaged")[0].removeprefix("'run.json': ") for line in run.damage}
    assert said == {"name", "stages.0", "stages.1.steps", "stages.1.layers.0.student", "timings.corpus",
                    "student.parameters"}  # fmt: skip
    assert (run.timings, run.student.shape, run.student.parameters) == ({"total": 2}, "bert 2x8", None)
    assert [(stage.name, stage.steps, stage.layers[0].teacher) for stage in run.stages] == [("a", None, [2])]


def test_a_record_is_of_the_kind_that_its_file_names(tmp_path: Path) -> None:
    kinds = {"mapping": studies.MappingSearch, "architecture": studies.ArchitectureSearch, "other": studies.Search}
    for kind, expected in kinds.items():
        (tmp_path / "search.json").write_text(json.dumps({"kind": kind, "name": "x"}))
        assert type(load(studies.Search, tmp_path)) is expected
    assert type(studies.MappingSearch.read({"kind": "architecture"})) is studies.MappingSearch


def test_what_is_written_is_json_in_the_order_it_was_set(tmp_path: Path) -> None:
    stage = records.Stage(name="a", steps=3, final_loss=float("nan"), held_out={"loss": float("inf")}, drawn=None)
    stage.seconds = 1.5
    save(stage, tmp_path)
    text = (tmp_path / "stage.json").read_text()
    expected = {"name": "a", "steps": 3, "final_loss": None, "held_out": {"loss": None}, "drawn": None, "seconds": 1.5}
    assert json.dumps(json.loads(text)) == json.dumps(expected)
    assert load(records.Stage, tmp_path).seconds == 1.5


@pytest.mark.parametrize("kind", [records.Run, studies.Search, studies.Comparison])
def test_files_that_are_no_records_are_empty_ones(kind: type[File], tmp_path: Path, monkeypatch: Any) -> None:
    def damage_of(text: str) -> tuple[str, ...]:
        (tmp_path / kind.FILE).write_text(text)
        found = load(kind, tmp_path)
        assert found.is_empty
        return found.damage

    assert load(kind, tmp_path / "none").damage == ()
    assert damage_of("{}") == ()
    for text in ("", "{", "[1]", "3", "[" * 100_000):
        assert damage_of(text) == (f"'{kind.FILE}' is damaged and cannot be read.",)
    monkeypatch.setattr(base, "MOST_BYTES", 1)
    assert "is larger than" in damage_of("{ }")[0]
    (tmp_path / kind.FILE).unlink()
    os.mkfifo(tmp_path / kind.FILE)
    assert load(kind, tmp_path).is_empty
