"""The tables of a comparison: every form has the same figures, fits its width, and marks the best."""

import csv
import io
import json

import pytest
from rich.console import Console

from limbeck.report.comparison_tables import methods_csv, methods_markdown, methods_table, write_comparison


def figures(mean, *runs):
    return {"mean": mean, "deviation": 1.25 if runs else None, "runs": list(runs) or [mean]}


def row(method, mapping, score, rank, *, student="3x384", best=False, finished=2, **more):
    average = {**figures(score, score - 1, score + 1), "of": ["rte", "mrpc"], "complete": True} if finished else None
    cell = {**figures(score, 1, 2), "metrics": {"accuracy": figures(score, 1, 2), "f1": figures(score / 2, 1, 2)}}
    return {
        "student": student, "method": method, "mapping": mapping, "shape": "bert 3x384", "finished": finished,
        "wanted": 2,
        "columns": {"rte": cell} if finished else {}, "averages": {"average": average, "without_cola": None},
        "retention": {"rte": 95.0, "average": 97.5} if finished else {}, "rank": rank, "best_mapping": best,
        "held_out": {"relations": figures(0.01234)} if finished else {}, "tokens": figures(990.0, 980, 1000),
        "seconds": figures(2.0), "main": figures(score, 1, 2) if finished else None, "seeds": [1, 2][:finished],
    } | more  # fmt: skip


@pytest.fixture
def record():
    rows = [
        row("hidden_states", "last", 70.0, 3), row("hidden_states", "uniform|last", 71.5, 2, best=True),
        row("minilmv2", "", 80.0, 1), row("mlm", "", 0.0, None, finished=0),
    ]  # fmt: skip
    published = {
        "paper": "comparative_study", "table": "5", "model": "HS", "teacher": "BERT-base", "shape": "3x384",
        "split": "unstated", "columns": {"rte": 65.1}, "average": 79.0, "without_cola": None,
    }  # fmt: skip
    cost = {"parameters": 17_000_000, "speedups": [{"batch": 32, "length": 128, "speedup": 5.26}]}
    teacher = row("", "", 82.0, None) | {
        "name": "t",
        "title": "teacher",
        "shape": "bert 12x768",
        "retention": {},
        "cost": None,
    }
    summary = {
        "preset": "quick", "main": {"kind": "averages", "key": "average", "title": "average", "of": ["rte", "mrpc"]},
        "columns": [{"key": "rte", "title": "RTE", "metric": "accuracy", "detail": False, "kind": "classification"}],
        "held_out": [{"key": "relations", "title": "relations", "digits": 4, "best": "lowest"}], "teacher": teacher,
        "blocks": [
            {"student": "3x384", "shape": "bert 3x384", "cost": cost, "rows": rows, "published": [published]},
            {"student": "2x384", "shape": "bert 2x384", "cost": None, "published": [],
             "rows": [row("minilmv2", "", 60.0, 1, student="2x384")]},
        ],
        "notes": ["2 runs failed (first mlm): [why]"],
    }  # fmt: skip
    return {
        "name": "Which method?", "summary": summary, "costs": None, "corpus": {"tokens": 5000},
        "plan": {"budget": {"tokens": 1000}, "seeds": [1, 2]},
        "impossible": [{"student": "2x384", "method": "tinybert", "mapping": "last", "reason": "heads differ"}],
    }  # fmt: skip


def table_after(text, heading):
    """The rows of the Markdown table under a heading: label to cells, marks taken off."""
    part = text.split(f"## {heading}")[1].split("\n\n")[1]
    rows = [line.replace(r"\|", "¦").strip("| ").split(" | ") for line in part.splitlines()]
    return {label.strip("*"): cells for label, *cells in rows[2:]}, rows[0]


def test_the_overview_has_methods_down_and_students_across(record):
    rows, headings = table_after(methods_markdown(record), "All students: average")
    assert headings[-2:] == ["3x384, 17.00 M, 5.3x", "2x384"]
    assert rows["teacher"] == ["82.0 ± 1.2", "82.0 ± 1.2"]
    assert rows["hidden_states, uniform¦last"] == ["*71.5 ± 1.2*", "–"]
    assert rows["minilmv2"] == ["**80.0 ± 1.2**", "**60.0 ± 1.2**"]
    assert rows["mlm"] == ["–", "–"]


def test_each_student_has_every_column(record):
    text = methods_markdown(record)
    rows, headings = table_after(text, "3x384 (bert 3x384): 17.00 M parameters, 5.3x as fast at 32 x 128 tokens")
    assert headings[-5:] == [
        "rank", "% of teacher, average", "RTE, accuracy", "Average, of 2", "relations, held out, ↓"
    ]  # fmt: skip
    assert rows["hidden_states, last"] == ["3", "97.5 %", "70.0 ± 1.2", "70.0 ± 1.2", "0.0123"]
    assert rows["mlm (0 of 2 seeds)"] == ["–"] * 5
    assert rows["HS of BERT-base, 3x384 (Comparative study, table 5)"] == ["–", "–", "65.1", "79.0", "–"]
    assert "**minilmv2**" in text and "*hidden_states, uniform" in text
    assert "Teacher teacher (bert 12x768); 1,000 tokens a run of a corpus of 5,000; seeds 1, 2." in text
    assert "Runs read 980 to 1,000 tokens." in text
    assert "- tinybert, last on 2x384: heads differ" in text and "- 2 runs failed (first mlm): [why]" in text


def test_csv_has_unrounded_figures_a_line_each(record):
    lines = list(csv.DictReader(io.StringIO(methods_csv(record))))
    own = {(line["figure"], line["metric"]): line for line in lines if line["mapping"] == "uniform|last"}
    assert own["rte", "accuracy"]["mean"] == "71.5" and own["rte", "accuracy"]["retention"] == "95.0"
    assert own["rte", "f1"]["retention"] == ""
    assert own["average", ""]["rank"] == "2" and own["rte", "accuracy"]["rank"] == ""
    assert own["tokens", ""]["mean"] == "990.0"
    assert [line["mean"] for line in lines if line["figure"] == "parameters"] == ["17000000"]
    assert next(line["mean"] for line in lines if line["method"] == "teacher") == "82.0"


@pytest.mark.parametrize("width", [60, 100, 200])
def test_the_terminal_shows_all_of_it_within_its_width(record, width):
    console = Console(width=width, file=io.StringIO(), no_color=True)
    console.print(methods_table(record))
    text = console.file.getvalue()
    assert all(len(line) <= width for line in text.splitlines())
    for part in ("All students: average", "minilmv2", "79.0", "0.0123", "80.0 ± 1.2", "[why]", "heads differ"):
        assert part in " ".join(text.split())
    assert "*" not in text, "Markdown's marks become styles"


def test_without_a_figure_there_is_no_overview(record):
    summary = record["summary"] | {"main": None, "columns": [], "held_out": [], "preset": None}
    text = methods_markdown(record | {"summary": summary})
    assert "All students" not in text and "rank" not in text


def test_files(record, tmp_path):
    paths = write_comparison(record, tmp_path)
    assert [path.suffix for path in paths] == [".md", ".csv", ".json"]
    assert json.loads(paths[2].read_text())["blocks"][0]["rows"][2]["rank"] == 1
