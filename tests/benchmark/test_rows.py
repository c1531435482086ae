"""Rows go to CSV and JSON with their machine."""

import csv
import json
import math

import pytest

from limbeck.benchmark.rows import check_output, describe_machine, tidy, write_rows
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


def test_both_formats_hold_the_rows_and_their_machine(tmp_path):
    write_rows(tmp_path / "new" / "rows.json", "loss", ROWS, MACHINE)
    assert json.loads((tmp_path / "new" / "rows.json").read_text()) == {
        "benchmark": "loss", "machine": MACHINE, "rows": ROWS
    }  # fmt: skip
    write_rows(tmp_path / "rows.csv", "loss", ROWS, MACHINE)
    machine = {"device": MACHINE["device"], "cores": 2, "threads": 1, "platform": "Linux"}
    machine |= {"versions": "limbeck=0.1.0 torch=2.6.0+cpu", "commit": None, "created": MACHINE["created"]}
    whole = [{"benchmark": "loss", **row, **machine} for row in ROWS]
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
        result = list(csv.DictReader(file, quoting=csv.QUOTE_NONNUMERIC))
    assert result == [{key: "" if value is None else value for key, value in row.items()} for row in whole]
    assert list(result[0]) == list(whole[0])


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
