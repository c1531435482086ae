"""Tables beside their golden files: other figures, missing ones, and the files that are written."""

import io
import json
import pkgutil

import pytest
import yaml
from rich.console import Console

import limbeck.report
from limbeck.core.blocks import duration, mean, rounded
from limbeck.core.records import Run
from limbeck.core.run_status import status_of
from limbeck.core.studies import Comparison, Figure
from limbeck.errors import OutputError
from limbeck.report import comparison_rows, comparison_table, write_model_card, write_tables
from limbeck.report.comparison import methods_markdown, methods_tables
from limbeck.report.provenance import run_provenance
from limbeck.report.quality import format_count
from limbeck.report.search import search_files, write_search
from tests.golden.committed import read


@pytest.fixture
def values():
    """A teacher beside its student, with every figure."""
    return read("large-run", "run.json")["evaluation"]


def rendered(values, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(comparison_table(values))
    return console.file.getvalue()


def test_counts_read_well():
    counts = {0: "0", 9_999: "9,999", 12_345: "12.3 k", 147_840: "147.8 k", 5_323_392: "5.32 M", 1.24e9: "1.24 G"}
    assert {value: format_count(value) for value in counts} == counts


def test_a_record_of_no_rows_has_shares_of_nothing(tmp_path):
    run = Run.read({"corpus": {"views": [{"stage": "a", "pieces": {"sentence": 0}}]}})
    *_, table = run_provenance(run, tmp_path, status_of(tmp_path))
    assert [str(cell) for cell in table.rows[0]] == ["a", "sentence", "0.00%"]


def test_a_larger_or_slower_student_is_called_so(values):
    values["student"]["megabytes"] = 181.8
    batch = values["latency"]["batches"][0]
    batch["speedup"] = 0.5
    batch["student"]["median_ms"] = 2 * batch["teacher"]["median_ms"]
    assert {"2.00x larger", "2.00x slower"} <= {row.cells().change for row in comparison_rows(values)}


@pytest.mark.parametrize("missing", [(), ("latency", "agreement"), ("teacher",), ("student", "latency")])
def test_the_terminal_table_fits(values, missing):
    assert max(map(len, rendered(values | dict.fromkeys(missing), 40).splitlines())) <= 40


def test_scores_on_development_rows(values):
    scores = {
        "task": "squad2",
        "split": "validation",
        "rows": 60,
        "teacher_name": "big",
        "teacher": {"f1_answer": 0.8, "best_f1_threshold": 1.5},
        "student": {"f1_answer": 0.6, "matthews": 0.1},
    }
    missing = {"task": "mrpc", "unavailable": "The head has 3 outputs."}
    whole = values | {"development": [scores, missing]}
    cells_of_rows = [row.cells() for row in comparison_rows(whole) if "squad2" in row.label]
    assert cells_of_rows == [("Answer F1 on squad2, validation", "0.800", "0.600", ""),
                    ("Matthews on squad2, validation", "–", "0.100", "")]  # fmt: skip
    text = " ".join(rendered(whole, 200).split())
    assert (
        "Scored on the 60 rows of squad2, validation, without fine-tuning (few, so the scores are rough); teacher: big."
        in text
    )
    assert "No scores on mrpc: The head has 3 outputs." in text


@pytest.mark.parametrize("change", [{"speedup": 1.5}, {"transformer_speedup": 2.4}, {"rounds": 4}, {"student": 2.0}])
def test_times_of_a_busy_machine_are_called_so(values, change):
    first = values["latency"]["batches"][0]
    first["rounds"] = 5
    assert "busy" not in rendered(values)
    uneven = {"student": {**first["student"], "p90_ms": 2 * first["student"]["p90_ms"]}}
    first |= uneven if "student" in change else change
    assert "The machine was busy" in rendered(values)


def test_all_optional_figures_missing():
    model = {"parameters": {"embedding": 10, "transformer": 20}, "megabytes": None, "retrieval": None}
    why = {"agreement": "Only 3 [pairs]: hold out more text."}
    text = rendered({"teacher": model, "student": model, "latency": None, "agreement": None, "unavailable": why})
    assert "Transformer parameters" in text and "Latency" not in text
    assert "No agreement: only 3 [pairs]: hold out more text." in text
    junk = {"teacher": 3, "agreement": {"interval": [1]}}
    for empty in ({}, {"latency": {}}, {"latency": {"batches": None}}, junk):
        assert comparison_rows(empty) == [] and rendered(empty)


def test_files_of_a_run(values, tmp_path):
    assert [path.name for path in write_tables(values, tmp_path)] == ["evaluation.md", "evaluation.csv"]
    (path,) = write_tables(values, tmp_path, stem="figures", suffixes=[".json"])
    assert json.loads(path.read_text()) == values
    with pytest.raises(ValueError, match=r"\.xlsx is not a format of tables"):
        write_tables(values, tmp_path, suffixes=[".xlsx"])


def test_a_comparison_without_a_main_figure_has_no_overview():
    record = read("large-comparison", "comparison.json")
    record["summary"] |= {"main": None, "columns": [], "held_out": [], "preset": None}
    text = methods_markdown(record)
    assert "All students" not in text and "rank" not in text


def test_notes_of_a_search_leave_out_what_did_not_happen():
    record = read("large-search-architecture", "search.json")
    record["limits"] |= {"parameters": 30_000_000}
    record["shapes"][1] |= {"note": "the machine was busy", "reason": "of | the latency"}
    text = search_files(record)["search.md"]
    assert "Limits: 30,000,000 parameters and 0.45 of" in text and r"refused: of \| the latency" in text
    assert f"- Latency of 1 of {len(record['shapes'])} shapes: the machine was busy, so processor time" in text
    record["shapes"][1]["note"] = None
    record["loss"]["kind"] = "relations"
    record["limits"] = {"parameters": None, "latency_share": None}
    record["cost"] |= {"cut": 0, "diverged": 0, "refused": 0, "failed": 0, "training_seconds": 0.0}
    text = search_files(record)["search.md"]
    assert "query, key and value relations" in text and "trained to the end." in text
    assert not any(word in text for word in ("Limits", "failed", "busy"))
    assert "halving" not in search_files(read("large-search-teacher-layer", "search.json") | {"rungs": []})["search.md"]


def test_a_search_leaves_record_recipe_tables_and_pictures(tmp_path):
    record = read("large-search-mapping", "search.json")
    folder = tmp_path / "deep" / "out"
    files = write_search(folder, record)
    assert [path.name for path in files] == [
        "search.json", "recipe.yaml", "search.md", "generations.csv", "candidates.csv", "evolution.svg",
        "evolution.png",
    ]  # fmt: skip
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in files)
    assert json.loads((folder / "search.json").read_text()) == record
    assert ">Evolution of fitness: elm-4<" in (folder / "evolution.svg").read_text()
    text = (folder / "recipe.yaml").read_text()
    assert text.startswith("# Highest-scoring candidate of `limbeck search mapping` (study 'elm-4'); each was trained")
    assert yaml.safe_load(text) == record["recipe"]
    files = write_search(tmp_path, record | {"recipe": None, "best": None, "candidates": [], "generations": []})
    assert [path.name for path in files] == ["search.json", "search.md", "generations.csv", "candidates.csv"]
    assert "Best candidate" not in (tmp_path / "search.md").read_text()
    with pytest.raises(OutputError, match="cannot be written"):
        write_search(tmp_path / "search.md" / "out", record)


def test_a_search_that_stops_while_it_writes_its_figures_is_not_finished(tmp_path, monkeypatch):
    def stop(sheet, path, **more):
        path.write_bytes(b"torn")
        raise KeyboardInterrupt

    old_figure = tmp_path / "evolution.svg"
    old_figure.write_text("whole")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", stop)
    with pytest.raises(KeyboardInterrupt):
        write_search(tmp_path, read("large-search-mapping", "search.json"))
    assert old_figure.read_text() == "whole"
    assert not (tmp_path / "search.json").exists() and (tmp_path / "recipe.yaml").exists()
    assert not list(tmp_path.glob("*.partial")) + list(tmp_path.glob(".*"))


@pytest.mark.parametrize("write", [write_tables, write_model_card])
def test_what_cannot_be_written_is_refused_in_a_line(tmp_path, write):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        write({}, tmp_path / "file" / "student")


def test_every_module_is_on_the_map_of_the_package():
    modules = {module.name for module in pkgutil.iter_modules(limbeck.report.__path__)}
    assert [module for module in sorted(modules) if f"`{module}`" not in limbeck.report.__doc__] == []


def test_a_comparison_without_a_name_has_a_heading():
    record = read("large-comparison", "comparison.json") | {"name": None}
    assert methods_markdown(record).startswith("# Comparison of methods\n")
    record["summary"]["teacher"]["title"] = "/home/someone/models/teacher"
    assert "/home" not in str(methods_tables(Comparison.read(record).summary))


def test_no_module_takes_the_name_of_something_that_the_package_gives():
    modules = {module.name for module in pkgutil.iter_modules(limbeck.report.__path__)}
    assert not modules & set(limbeck.report.__all__), "importing the module would hide the function"


def test_a_score_is_rounded_alike_in_percent_and_as_a_share():
    # The nearest binary number to 0.7575 is below it; 75.75 and 52.25 lie between two even and odd last digits.
    for share in (0.7575, 0.5225, 0.0285):
        [row] = comparison_rows({"development": [{"task": "own", "student": {"accuracy": share}}]})
        in_percent = str(mean(Figure.of_runs([100 * share])))
        assert float(row.cells().student) == pytest.approx(float(in_percent) / 100)
    assert (rounded(float("inf"), 1), rounded(float("nan"), 1), rounded(-0.25, 1)) == ("inf", "nan", "-0.3")


@pytest.mark.parametrize(
    ("seconds", "longest", "text"),
    [(5400, 10_800, "1.5 h"), (60, 10_800, "60 s"), (170, 10_800, "3 min"), (1, 600, "1 s"), (0, 10_800, "0.0 h")],
)
def test_a_time_that_the_unit_of_its_column_would_hide_has_its_own(seconds, longest, text):
    assert duration(seconds, longest=longest) == text
