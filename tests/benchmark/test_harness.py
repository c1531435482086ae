"""Scripts of measurements compare sides in turns, and write rows with the machine."""

import json

import pytest

harness = pytest.importorskip("benchmarks.harness")


def test_sides_take_turns_in_the_opposite_order_every_other_round():
    calls = []

    def measure(name):
        calls.append(name)
        return float(len(calls))

    figures = harness.take_turns({"a": lambda: measure("a"), "b": lambda: measure("b")}, rounds=2, warm_up=1)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert figures == {"a": [4.0, 5.0], "b": [3.0, 6.0]}


def test_ratios_are_of_one_round():
    ratios = harness.ratio_of([2.0, 6.0, 9.0], [1.0, 2.0, 9.0])
    assert ratios == {"ratio": 2.0, "ratio_lowest": 1.0, "ratio_highest": 3.0}


def test_rows_are_written_with_what_they_were_made_with(tmp_path):
    harness.write_rows(tmp_path / "new" / "rows.json", [{"figure": 1}], seed=3)
    content = json.loads((tmp_path / "new" / "rows.json").read_text())
    assert content["rows"] == [{"figure": 1}] and content["seed"] == 3
    assert content.keys() >= {"commit", "hardware", "versions", "load"}


def test_a_process_knows_its_peak():
    assert harness.resident_megabytes(highest=True) >= harness.resident_megabytes() > 0


def test_tables_are_markdown():
    assert harness.table(["side", "ms"], [["limbeck", 3]]) == "| side | ms |\n|---|---:|\n| limbeck | 3 |"
