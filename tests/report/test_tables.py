"""Tables beside their golden files: other figures, missing ones, and the files that are written."""

import csv
import io
import json

import pytest
import yaml
from rich.console import Console

from limbeck.errors import OutputError
from limbeck.report import comparison_rows, comparison_table, write_tables
from limbeck.report.comparison import methods_markdown
from limbeck.report.quality import format_count
from limbeck.report.search import search_files, write_search
from tests.golden.committed import FOLDERS
from tests.support.reports import comparison, layer_search_record, mapping_search_record, shape_search_record


def rendered(values, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(comparison_table(values))
    return console.file.getvalue()


def test_counts_read_well():
    counts = {0: "0", 9_999: "9,999", 12_345: "12.3 k", 147_840: "147.8 k", 5_323_392: "5.32 M", 1.24e9: "1.24 G"}
    assert {value: format_count(value) for value in counts} == counts


def test_a_larger_or_slower_student_is_called_so():
    values = comparison()
    values["student"]["megabytes"] = 181.8
    values["latency"]["batches"][0]["speedup"] = 0.5
    changes = [row.cells()[3] for row in comparison_rows(values)]
    assert "2.00x larger" in changes and "2.00x slower" in changes


@pytest.mark.parametrize("missing", [(), ("latency", "agreement"), ("teacher",), ("student", "latency")])
def test_the_terminal_table_fits(missing):
    text = rendered(comparison() | dict.fromkeys(missing), 40)
    assert max(map(len, text.splitlines())) <= 40


@pytest.mark.parametrize("change", [{"speedup": 1.5}, {"transformer_speedup": 2.4}, {"rounds": 4}, {"student": 2.0}])
def test_times_of_a_busy_machine_are_called_so(change):
    values = comparison()
    first = values["latency"]["batches"][0]
    first["rounds"] = 5
    assert "busy" not in rendered(values)
    first |= (
        {"student": {**first["student"], "p90_ms": 2 * first["student"]["p90_ms"]}} if "student" in change else change
    )
    assert "The machine was busy" in rendered(values)


def test_all_optional_figures_missing():
    model = {"parameters": {"embedding": 10, "transformer": 20}, "megabytes": None, "retrieval": None}
    why = {"agreement": "Only 3 [pairs]: hold out more text."}
    text = rendered({"teacher": model, "student": model, "latency": None, "agreement": None, "unavailable": why})
    assert "Transformer parameters" in text and "Latency" not in text
    assert "No agreement: Only 3 [pairs]: hold out more text." in text
    junk = {"teacher": 3, "agreement": {"interval": [1]}}
    for empty in ({}, {"latency": {}}, {"latency": {"batches": None}}, junk):
        assert comparison_rows(empty) == []
        rendered(empty)


def test_files_of_a_run(tmp_path):
    assert [path.name for path in write_tables(comparison(), tmp_path)] == ["evaluation.md", "evaluation.csv"]
    (path,) = write_tables(comparison(), tmp_path, stem="figures", suffixes=[".json"])
    assert json.loads(path.read_text()) == comparison()
    with pytest.raises(ValueError, match=r"no table format \.xlsx"):
        write_tables(comparison(), tmp_path, suffixes=[".xlsx"])


def test_a_comparison_without_a_main_figure_has_no_overview():
    record = json.loads((FOLDERS["large-comparison"] / "comparison.json").read_text())
    record["summary"] |= {"main": None, "columns": [], "held_out": [], "preset": None}
    text = methods_markdown(record)
    assert "All students" not in text and "rank" not in text


def rows_of(record, heading):
    """The rows of the table below a heading of `search.md`."""
    lines = search_files(record)["search.md"].split(f"## {heading}\n\n")[1].split("\n\n")[0].splitlines()
    return [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines[2:]]


def csv_of(record, name):
    return list(csv.DictReader(io.StringIO(search_files(record)[name])))


def test_shapes_are_ranked_and_say_what_became_of_them():
    rows = rows_of(shape_search_record(), "All shapes")
    assert [row[0] for row in rows] == ["1", "0", "2", "3", "4", "5"]
    assert rows[5][-3:] == ["–", "–", r"refused: 1.2 of the \| latency, 1 is it"]
    lines = csv_of(shape_search_record(), "shapes.csv")
    assert lines[0]["latency_share"] == repr(0.1 * 3) and lines[5]["loss"] == ""
    assert [line["front"] for line in lines] == ["True", "True", "False", "False", "False", "False"]


def test_layers_have_a_score_at_every_rung():
    record = layer_search_record()
    assert [(row["layer"], row["step"], row["score"]) for row in csv_of(record, "layers.csv")] == [
        ("10", "10", "40.0"), ("10", "30", "50.0"), ("12", "10", "41.0"), ("12", "30", "49.0"), ("11", "10", "39.0"),
        ("9", "", ""),
    ]  # fmt: skip
    record["layers"][2]["scores"] = [{"step": 10, "score": None, "agreement": None, "explained": 3.0}]
    assert rows_of(record, "Layers") == [
        ["1", "10", "40.00", "50.00", "51.00", "49.00", "0.1250", "–"],
        ["2", "12", "41.00", "49.00", "50.00", "48.00", "0.1000", "–"],
        ["3", "11", "–", "–", "–", "3.00", "0.5000", "after 10"],
        ["4", "9", "–", "–", "–", "–", "–", "diverged"],
    ]


def test_notes_of_a_search_leave_out_what_did_not_happen():
    record = shape_search_record()
    record["shapes"][1]["note"] = "the machine was busy"
    text = search_files(record)["search.md"]
    assert "Limits: 30,000,000 parameters and 1 of" in text
    assert "- Latency of 1 of 6 shapes: the machine was busy, so it is of" in text
    record["shapes"][1]["note"] = None
    record["loss"]["kind"] = "relations"
    record["limits"] = {"parameters": None, "latency_share": None}
    record["cost"] |= {"cut": 0, "diverged": 0, "refused": 0, "failed": 0, "training_seconds": 0.0}
    text = search_files(record)["search.md"]
    assert "query, key and value relations" in text and "trained to the end." in text
    assert not any(word in text for word in ("Limits", "failed", "busy"))
    record = layer_search_record()
    assert "halving" in search_files(record)["search.md"]
    assert "halving" not in search_files(record | {"rungs": []})["search.md"]


def test_a_search_leaves_record_recipe_tables_and_pictures(tmp_path):
    found, folder = mapping_search_record(), tmp_path / "deep" / "out"
    files = write_search(folder, found)
    assert [path.name for path in files] == [
        "search.json", "recipe.yaml", "search.md", "generations.csv", "candidates.csv", "evolution.svg",
        "evolution.png", "distribution.svg", "distribution.png",
    ]  # fmt: skip
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in files)
    assert json.loads((folder / "search.json").read_text()) == found
    text = (folder / "recipe.yaml").read_text()
    assert text.startswith("# Found by `limbeck search mapping` (study 'elm-4')")
    assert yaml.safe_load(text) == found["recipe"]
    nothing = found | {"recipe": None, "best": None, "candidates": [], "generations": []}
    files = write_search(tmp_path, nothing)
    assert [path.name for path in files] == ["search.json", "search.md", "generations.csv", "candidates.csv"]
    assert "Found:" not in (tmp_path / "search.md").read_text()
    with pytest.raises(OutputError, match="cannot be written"):
        write_search(tmp_path / "search.md" / "out", found)
