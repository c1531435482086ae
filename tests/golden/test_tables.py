"""Tables and cards of committed records, byte for byte: files, and terminals of three widths."""

from __future__ import annotations

import io
import shutil

import pytest
from rich.console import Console

import limbeck
from limbeck.core.console_blocks import console
from limbeck.core.exports import Export
from limbeck.inspection.results import read_result
from limbeck.report import comparison, evaluation, export_text, inspection, quality, search, write_model_card
from limbeck.report.costs import costs_table
from tests.golden.committed import FOLDERS, read
from tests.golden.snapshot import check

WIDTHS = (60, 80, 120)


def of_a_run(record):
    record = record["evaluation"]
    files = {"evaluation.md": quality.comparison_markdown(record), "evaluation.csv": quality.comparison_csv(record)}
    return {"table": quality.comparison_table(record)}, files


def of_an_evaluation(summary):
    costs = summary.get("costs")
    shown = {"table": evaluation.evaluation_table(summary)}
    shown |= {} if costs is None else {"costs": costs_table(costs)}
    markdown, csv = evaluation.evaluation_markdown(summary, costs), evaluation.evaluation_csv(summary)
    return shown, {"evaluation_table.md": markdown, "evaluation_table.csv": csv}


def of_a_comparison(record):
    markdown, csv = comparison.methods_markdown(record), comparison.methods_csv(record)
    return {"table": comparison.methods_table(record)}, {"comparison_table.md": markdown, "comparison_table.csv": csv}


def of_a_search(record):
    return {"table": search.search_table(record)}, search.search_files(record)


def of_inspections(attention):
    results = {
        name: read("inspections", f"{name}.json")["result"] for name in ("phrases", "similarity", "contribution")
    }
    results["attention"] = attention["result"]
    shown = {}
    for title, name in (
        ("phrases", "phrases"),
        ("divergence", "attention"),
        ("similarity", "similarity"),
        ("contribution", "contribution"),
    ):
        shown[title] = inspection.inspection_table(name, read_result(name, results[name]))
    return shown, {}


def of_an_export(record):
    said = "\n".join((export_text.export_title(record), *export_text.export_lines(record)))
    table = export_text.latency_table(Export.read(record).int8.latency)
    return {"latencies": console(table)}, {"lines.txt": f"{said}\n"}


#: What makes tables and files of a record, its file, and the folders that have one.
MADE = [
    (of_a_run, "run.json", "finished large-run"),
    (of_an_evaluation, "evaluation_table.json", "evaluation evaluation-with-costs large-evaluation"),
    (of_a_comparison, "comparison.json", "comparison comparison-with-costs large-comparison"),
    (of_a_search, "search.json", "search-mapping search-architecture search-teacher-layer"),
    (of_a_search, "search.json", "large-search-mapping large-search-architecture large-search-teacher-layer"),
    (of_inspections, "attention.json", "inspections"),
    (of_an_export, "export.json", "export-onnx-int8"),
]


@pytest.mark.parametrize(
    ("make", "file", "folder"),
    [pytest.param(make, file, folder, id=folder) for make, file, folders in MADE for folder in folders.split()],
)
def test_tables_on_a_terminal_and_as_files(make, file, folder):
    shown, files = make(read(folder, file))
    parts = []
    for name, table in shown.items():
        for width in WIDTHS:
            stream = io.StringIO()
            Console(file=stream, width=width, color_system=None, legacy_windows=False).print(table)
            text = "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())
            parts.append(f"== {name}, {width} columns\n{text}")
    check(f"tables/{folder}/console.txt", "\n".join(parts))
    for name, text in files.items():
        check(f"tables/{folder}/{name}", text)


@pytest.mark.parametrize("folder", ["finished", "large-run"])
@pytest.mark.parametrize("export", [False, True], ids=["student", "export"])
def test_the_model_card(tmp_path, folder, export):
    student = tmp_path / "student"
    student.mkdir()
    config = FOLDERS[folder] / "student" / "config.json"
    if config.is_file():
        shutil.copy(config, student)
    exported = read("export-onnx-int8", "export.json") if export else None
    card = write_model_card(read(folder, "run.json"), student, export=exported).read_text(encoding="utf-8")
    assert str(tmp_path) not in card
    name = f"cards/{folder}-{'export' if export else 'student'}.md"
    check(name, card.replace(f"limbeck {limbeck.__version__}", "limbeck VERSION"))
