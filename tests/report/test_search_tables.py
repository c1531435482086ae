"""The tables of searches show the numbers of their records, and their files are whole."""

import csv
import io
import json

import pytest
import yaml
from rich.console import Console

from limbeck.errors import OutputError
from limbeck.report.search import write_search
from limbeck.report.search_figures import search_pictures
from limbeck.report.search_tables import search_files, search_table
from tests.support.reports import layer_search_record, mapping_search_record, shape_search_record

RECORDS = {"mapping": mapping_search_record, "architecture": shape_search_record, "teacher-layer": layer_search_record}


def rows_of(record, heading):
    """The rows of the table below a heading of `search.md`."""
    lines = search_files(record)["search.md"].split(f"## {heading}\n\n")[1].split("\n\n")[0].splitlines()
    return [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines[2:]]


def csv_of(record, name):
    return list(csv.DictReader(io.StringIO(search_files(record)[name])))


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("width", [60, 120])
def test_the_terminal_shows_the_best_first_at_any_width(kind, width):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(search_table(RECORDS[kind]()))
    shown = console.file.getvalue()
    best = {"mapping": "(0, 0, 5, 10)", "architecture": "Found: 6x384", "teacher-layer": "layer 10 of 12"}
    assert best[kind] in shown
    assert max(map(len, shown.splitlines())) <= width


def test_shapes_are_ranked_and_say_what_became_of_them():
    record = shape_search_record()
    assert rows_of(record, "Front of loss and latency")[0] == [
        "3x384, 12 heads, FFN 1536", "17,323,392", "19.50", "0.300", "0.5000", "0.4500",
    ]  # fmt: skip
    rows = rows_of(record, "All shapes")
    assert [row[0] for row in rows] == ["1", "0", "2", "3", "4", "5"]
    assert rows[5][-3:] == ["–", "–", r"refused: 1.2 of the \| latency, 1 is it"]


def test_layers_have_a_score_at_every_rung():
    record = layer_search_record()
    record["layers"][2]["scores"] = [{"step": 10, "score": None, "agreement": None, "explained": 3.0}]
    assert rows_of(record, "Layers") == [
        ["1", "10", "40.00", "50.00", "51.00", "49.00", "0.1250", "–"],
        ["2", "12", "41.00", "49.00", "50.00", "48.00", "0.1000", "–"],
        ["3", "11", "–", "–", "–", "3.00", "0.5000", "after 10"],
        ["4", "9", "–", "–", "–", "–", "–", "diverged"],
    ]


def test_notes_leave_out_what_did_not_happen():
    record = shape_search_record()
    assert "Limits: 30,000,000 parameters and 1 of" in search_files(record)["search.md"]
    record["loss"]["kind"] = "relations"
    record["limits"] = {"parameters": None, "latency_share": None}
    record["cost"] |= {"cut": 0, "diverged": 0, "refused": 0, "failed": 0, "training_seconds": 0.0}
    text = search_files(record)["search.md"]
    assert "query, key and value relations" in text and "trained to the end." in text
    assert not any(word in text for word in ("Limits", "failed", "busy"))
    record = layer_search_record()
    assert "halving" in search_files(record)["search.md"]
    assert "halving" not in search_files(record | {"rungs": []})["search.md"]


def test_shapes_that_were_measured_on_a_busy_machine_are_noted():
    record = shape_search_record()
    record["shapes"][1]["note"] = "the machine was busy"
    assert "- Latency of 1 of 6 shapes: the machine was busy, so it is of" in search_files(record)["search.md"]
    assert csv_of(record, "shapes.csv")[1]["note"] == "the machine was busy"


def test_csv_has_numbers_unrounded():
    shapes = csv_of(shape_search_record(), "shapes.csv")
    assert shapes[0]["latency_share"] == repr(0.1 * 3) and shapes[5]["loss"] == ""
    assert [row["front"] for row in shapes] == ["True", "True", "False", "False", "False", "False"]
    assert [(row["layer"], row["step"], row["score"]) for row in csv_of(layer_search_record(), "layers.csv")] == [
        ("10", "10", "40.0"), ("10", "30", "50.0"), ("12", "10", "41.0"), ("12", "30", "49.0"), ("11", "10", "39.0"),
        ("9", "", ""),
    ]  # fmt: skip


def test_a_search_leaves_record_recipe_tables_and_pictures(tmp_path):
    found, folder = mapping_search_record(), tmp_path / "deep" / "out"
    files = write_search(folder, found, search_pictures(found))
    assert [path.name for path in files] == [
        "search.json", "recipe.yaml", "search.md", "generations.csv", "candidates.csv", "evolution.svg",
        "evolution.png", "distribution.svg", "distribution.png",
    ]  # fmt: skip
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in files)
    assert json.loads((folder / "search.json").read_text()) == found
    text = (folder / "recipe.yaml").read_text()
    assert text.startswith("# Found by `limbeck search mapping` (study 'elm-4')")
    assert yaml.safe_load(text) == found["recipe"]


def test_a_search_that_found_nothing_leaves_no_recipe(tmp_path):
    found = mapping_search_record() | {"recipe": None, "best": None, "candidates": [], "generations": []}
    files = write_search(tmp_path, found, search_pictures(found))
    assert [path.name for path in files] == ["search.json", "search.md", "generations.csv", "candidates.csv"]
    assert "Found:" not in (tmp_path / "search.md").read_text()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(OutputError, match="cannot be written"):
        write_search(tmp_path / "file" / "out", mapping_search_record(), {})
