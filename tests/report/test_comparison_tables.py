"""The tables of a comparison beside their golden files: any width, no main figure, the files."""

import io
import json

import pytest
from rich.console import Console

from limbeck.report.comparison_tables import methods_markdown, methods_table, write_comparison


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
