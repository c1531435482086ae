import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from limbeck.report import (
    comparison_csv,
    comparison_markdown,
    comparison_rows,
    comparison_table,
    write_tables,
)
from limbeck.report.quality import format_count
from tests.support.reports import comparison


def rendered(values, width):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(comparison_table(values))
    return console.file.getvalue()


def without(*parts):
    values = comparison()
    for part in parts:
        values[part] = None
    return values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (950, "950"),
        (9_999, "9,999"),
        (12_345, "12.3 k"),
        (147_840, "147.8 k"),
        (5_323_392, "5.32 M"),
        (109_482_240, "109.5 M"),
        (1.24e9, "1.24 G"),
    ],
)
def test_counts_read_well(value, text):
    assert format_count(value) == text


def test_cells_say_what_changed():
    cells = {row.label: row.cells()[1:] for row in comparison_rows(comparison())}
    assert cells == {
        "Transformer parameters": ("10.6 M", "5.32 M", "2.00x smaller"),
        "Embedding parameters": ("11.9 M", "11.9 M", "same"),
        "Weights, MB": ("90.9", "69.6", "1.31x smaller"),
        "Latency batch 1, ms": ("10.0", "5.2", "1.93x faster"),
        "Latency batch 32, ms": ("320.0", "166.4", "1.93x faster"),
        "  its Transformer part": ("304.0", "153.6", "1.98x faster"),
        "Agreement (Spearman)": ("–", "0.951", "95 %: 0.945 to 0.957"),
        "Retrieval MRR@10": ("0.800", "0.760", "95.0% kept"),
        "Retrieval recall@1": ("0.700", "0.660", "94.3% kept"),
    }


def test_a_larger_or_slower_student_is_called_so():
    values = comparison()
    values["student"]["megabytes"] = 181.8
    values["latency"]["batches"][0]["speedup"] = 0.5
    changes = [row.cells()[3] for row in comparison_rows(values)]
    assert "2.00x larger" in changes and "2.00x slower" in changes


@pytest.mark.parametrize("width", [80, 60, 40])
@pytest.mark.parametrize("missing", [(), ("latency", "agreement"), ("teacher",), ("student", "latency")])
def test_the_terminal_table_fits(width, missing):
    text = rendered(without(*missing), width)
    assert max(map(len, text.splitlines())) <= width
    if width == 80 and not missing:
        assert "│ Agreement (Spearman)   │" in text and "…" not in text


def test_times_of_a_busy_machine_are_called_so():
    values = comparison()
    assert "busy" not in rendered(values, 80)
    values["latency"]["batches"][1]["student"]["p90_ms"] *= 2
    assert "The machine was busy" in rendered(values, 80)


@pytest.mark.parametrize("change", [{"speedup": 1.5}, {"transformer_speedup": 2.4}, {"rounds": 4}])
def test_a_speedup_that_rounds_and_medians_do_not_share_is_said(change):
    values = comparison()
    values["latency"]["batches"][0]["rounds"] = 5
    assert "busy" not in rendered(values, 80)
    values["latency"]["batches"][0].update(change)
    assert "The machine was busy" in rendered(values, 80)


def test_all_optional_figures_missing():
    values = {
        role: {"parameters": {"embedding": 10, "transformer": 20}, "megabytes": None, "retrieval": None}
        for role in ("teacher", "student")
    }
    values.update(latency=None, agreement=None, unavailable={"agreement": "Only 3 [pairs]: hold out more text."})
    text = rendered(values, 80)
    assert "Transformer parameters" in text and "Latency" not in text
    assert "No agreement: Only 3 [pairs]: hold out more text." in text
    for empty in (
        {},
        {"latency": {}},
        {"latency": {"batches": None}},
        {"teacher": 3, "agreement": {"interval": [1]}},
    ):
        assert comparison_rows(empty) == []
        rendered(empty, 80)


def test_markdown_and_csv_say_the_same():
    lines = comparison_markdown(comparison(), notes=False).splitlines()
    assert lines[0] == "| | Teacher | Student | Student vs teacher |"
    assert len(lines) == 2 + len(comparison_rows(comparison()))
    assert all(line.count("|") == 5 for line in lines)
    rows = list(csv.DictReader(io.StringIO(comparison_csv(comparison()))))
    by_figure = {row["figure"]: row for row in rows}
    assert len(by_figure) == len(rows) == len(lines) - 2
    assert float(by_figure["Latency batch 32, ms, its Transformer part"]["speedup"]) == 1.98
    assert by_figure["Agreement (Spearman)"]["teacher"] == ""


def test_files(tmp_path: Path):
    paths = write_tables(comparison(), tmp_path)
    assert [path.name for path in paths] == ["evaluation.md", "evaluation.csv"]
    (path,) = write_tables(comparison(), tmp_path, stem="figures", suffixes=[".json"])
    assert json.loads(path.read_text()) == comparison()
    with pytest.raises(ValueError, match=r"no table format \.xlsx"):
        write_tables(comparison(), tmp_path, suffixes=[".xlsx"])
