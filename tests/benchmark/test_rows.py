"""Rows go to CSV and JSON with their machine, and come back the same."""

import csv
import json
import math

import pytest

from limbeck.benchmark.rows import check_output, describe_machine, read_rows, tidy, write_rows
from limbeck.errors import OutputError, RecipeError

MACHINE = {
    "device": 'An "odd", name',
    "hardware": {"device": "cpu", "cpu": "c", "cores": 2, "threads": 1, "platform": "Linux"},
    "versions": {"limbeck": "0.1.0", "torch": "2.6.0+cpu"},
    "commit": None,
    "created": "2026-01-02T03:04:05+00:00",
}
ROWS = [
    {"backend": "a, b", "batch": 8, "median_ms": 1.25, "error": 3.1e-17, "note": None, "name": "12"},
    {"backend": "línea\nnueva", "batch": 0, "median_ms": None, "error": 0.1 + 0.2, "note": "5 %", "name": "1e5"},
]


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_rows_come_back(tmp_path, suffix):
    path = tmp_path / "new" / f"rows{suffix}"
    write_rows(path, "loss", ROWS, MACHINE)
    machine = {"device": MACHINE["device"], "cores": 2, "threads": 1, "platform": "Linux"}
    machine |= {"versions": "limbeck=0.1.0 torch=2.6.0+cpu", "commit": None, "created": MACHINE["created"]}
    expected = [{"benchmark": "loss", **row, **machine} for row in ROWS]
    found = read_rows(path)
    assert found == expected
    assert [list(row) for row in found] == [list(row) for row in expected]
    assert [[type(x) for x in row.values()] for row in found] == [[type(x) for x in row.values()] for row in expected]


def test_other_programs_read_both_formats(tmp_path):
    write_rows(tmp_path / "r.json", "step", ROWS, MACHINE)
    whole = json.loads((tmp_path / "r.json").read_text())
    assert whole["machine"]["versions"] == {"limbeck": "0.1.0", "torch": "2.6.0+cpu"}
    assert whole["rows"] == ROWS
    write_rows(tmp_path / "r.csv", "step", ROWS, MACHINE)
    with (tmp_path / "r.csv").open(newline="") as file:
        plain = list(csv.DictReader(file))
    assert [row["batch"] for row in plain] == ["8", "0"]
    assert plain[1]["backend"] == "línea\nnueva"


def test_numbers_are_rounded_and_what_is_undefined_is_none():
    row = tidy({"a": 1.23456789e-9, "b": math.nan, "c": math.inf, "d": 12345678, "e": "", "f": "x", "g": None})
    assert row == {"a": 1.23457e-9, "b": None, "c": None, "d": 12345678, "e": None, "f": "x", "g": None}


def test_files_that_cannot_be_written_are_refused_before(tmp_path):
    check_output(None)
    check_output(tmp_path / "fine.csv")
    with pytest.raises(RecipeError, match=r"\.csv or \.json"):
        check_output(tmp_path / "rows.txt")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        check_output(tmp_path / "folder.csv")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        write_rows(tmp_path / "file" / "rows.csv", "loss", ROWS, MACHINE)


def test_the_machine_names_versions_and_commit():
    machine = describe_machine("cpu")
    assert machine["device"] == machine["hardware"]["cpu"] and "commit" in machine
    assert {"limbeck", "torch", "transformers", "python"} <= set(machine["versions"])
