"""The tables of a mapping search, and the files that a search leaves."""

import csv
import io
import json

import pytest
import yaml
from rich.console import Console

from limbeck.errors import OutputError
from limbeck.report.search_files import write_search
from limbeck.report.search_mapping_figures import mapping_pictures
from limbeck.report.search_tables import candidates_csv, generations_csv, mapping_markdown, mapping_table
from tests.support.reports import mapping_search_record


def rows_of(markdown, heading):
    """The cells of the table below a heading."""
    lines = markdown.split(f"## {heading}\n\n")[1].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in [lines[0], *lines[2:]]]


def printed(found, width=120):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(mapping_table(found))
    return console.file.getvalue()


def test_generations_are_a_table_as_in_the_paper():
    assert rows_of(mapping_markdown(mapping_search_record()), "Generations") == [
        ["Gen", "Max", "Min", "Avg", "Std", "Evaluated", "Best gene", "Mapping"],
        ["#1", "81.41", "78.91", "80.16", "1.25", "2 of 2", "000-000-011-101", "(0, 0, 6, 10)"],
        ["#2", "82.02", "81.41", "81.72", "0.30", "1 of 3", "000-000-010-101", "(0, 0, 5, 10)"],
    ]


def test_the_best_mappings_have_every_score():
    assert rows_of(mapping_markdown(mapping_search_record()), "Best mappings")[:2] == [
        ["Mapping", "Fitness", "sst2", "squad", "Gen"],
        ["(0, 0, 5, 10)", "82.02", "88.00", "76.04", "#2"],
    ]


def test_the_page_says_what_was_found_and_what_it_cost():
    page = mapping_markdown(mapping_search_record())
    assert "Found: **(0, 0, 5, 10)**, gene `000-000-010-101`, fitness 82.02 (sst2 88.00, squad 76.04)." in page
    assert "1,048 mappings of 4 student layers onto 12 teacher layers, 0 for none." in page
    assert "3 of 1,048 mappings evaluated in 2 min of workers' time, 80% of it distillation." in page
    assert "of the draws 1 of 3 in crossing and 2 of 2 in mutation were legal." in page
    assert (
        "lost with their worker, and are tried again: 1." in page
        and "(2, 4, 6, 8) has no fitness: its training diverged." in page
    )


def test_the_terminal_shows_the_same():
    shown = printed(mapping_search_record())
    for part in ("#2", "82.02", "000-000-010-101", "(0, 0, 5, 10)", "its training diverged"):
        assert part in shown
    assert max(map(len, printed(mapping_search_record(), width=60).splitlines())) <= 60


def test_csv_has_numbers_unrounded():
    rows = list(csv.DictReader(io.StringIO(generations_csv(mapping_search_record()))))
    assert rows[1] == {
        "generation": "2", "maximum": "82.02", "minimum": "81.41", "mean": "81.715", "deviation": "0.305",
        "size": "3", "evaluated": "1", "best_gene": "000-000-010-101", "best_mapping": "0 0 5 10",
    }  # fmt: skip
    candidates = list(csv.DictReader(io.StringIO(candidates_csv(mapping_search_record()))))
    assert [row["mapping"] for row in candidates] == ["0 0 5 10", "0 0 6 10", "1 3 5 12"]
    assert candidates[2]["squad"] == "72.82" and candidates[2]["fitness"] == str((85.0 + 72.82) / 2)


def test_a_search_leaves_record_recipe_tables_and_pictures(tmp_path):
    found, folder = mapping_search_record(), tmp_path / "deep" / "out"
    files = write_search(folder, found, mapping_pictures(found), {"search.md": mapping_markdown(found)})
    assert [path.name for path in files] == [
        "search.json", "recipe.yaml", "search.md", "evolution.svg", "evolution.png", "distribution.svg",
        "distribution.png",
    ]  # fmt: skip
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in files)
    assert json.loads((folder / "search.json").read_text()) == found
    text = (folder / "recipe.yaml").read_text()
    assert (
        text.startswith("# Found by `limbeck search mapping` (study 'elm-4')")
        and yaml.safe_load(text) == found["recipe"]
    )


def test_a_search_that_found_nothing_leaves_no_recipe(tmp_path):
    found = mapping_search_record() | {"recipe": None, "best": None, "candidates": [], "generations": []}
    files = write_search(tmp_path, found, mapping_pictures(found), {"search.md": mapping_markdown(found)})
    assert [path.name for path in files] == ["search.json", "search.md"]
    assert "Found:" not in (tmp_path / "search.md").read_text()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(OutputError, match="cannot be written"):
        write_search(tmp_path / "file" / "out", mapping_search_record(), {}, {})
