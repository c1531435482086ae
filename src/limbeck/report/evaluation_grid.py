"""The rows and columns that every form of an evaluation's table has, from its summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

PAPER_NAMES = {
    "minilm": "MiniLM",
    "minilmv2": "MiniLMv2",
    "elm": "ELM",
    "mlkd_bert": "MLKD-BERT",
    "comparative_study": "Comparative study",
}
METRIC_NAMES = {
    "accuracy": "accuracy",
    "f1": "F1",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "f1_answer": "F1",
    "exact_match": "exact match",
}
NOTHING = "–"
COMPUTED = " †"
"""After an average of published figures that is not printed where they are."""
_AVERAGES = {"average": "Average", "without_cola": "without CoLA"}


@dataclass(frozen=True)
class GridRow:
    """One row of the main table.

    Attributes:
        kind: A model, what it keeps of the first model's scores, or a row that a paper printed.
        label: What it is of.
        cells: One a heading.
    """

    kind: Literal["model", "retention", "published"]
    label: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class EvaluationGrid:
    """The main table.

    Attributes:
        headings: (title, metric) of every column.
        rows: Models, each with what it keeps, then published rows.
    """

    headings: tuple[tuple[str, str], ...]
    rows: tuple[GridRow, ...]


def evaluation_grid(summary: Mapping[str, Any]) -> EvaluationGrid:
    """Lay the main table out: tasks as columns, models as rows, averages last.

    Args:
        summary: As `limbeck.experiments.summary.summarise` gives it.
    """
    columns = [column for column in summary["columns"] if not column["detail"]]
    averages = [name for name in _AVERAGES if any(model["averages"][name] for model in summary["models"])]
    headings = [(column["title"], metric_name(column["metric"])) for column in columns]
    headings += [(_AVERAGES[name], _average_of(summary, name)) for name in averages]
    keys = [column["key"] for column in columns]
    rows: list[GridRow] = []
    for model in summary["models"]:
        found = [model["columns"].get(key) for key in keys] + [model["averages"][name] for name in averages]
        rows.append(GridRow("model", model["name"], tuple(figure(cell) for cell in found)))
        if model["retention"]:
            kept = [model["retention"].get(key) for key in (*keys, *averages)]
            label = f"% of {summary['models'][0]['name']}"
            rows.append(GridRow("retention", label, tuple(NOTHING if v is None else f"{v:.1f} %" for v in kept)))
    rows += [_published_row(row, keys, averages) for row in summary["published"]]
    return EvaluationGrid(tuple(headings), tuple(rows))


def detail_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """Go through every metric of every column: title, metric, and a figure of each model."""
    for column in summary["columns"]:
        cells = [model["columns"].get(column["key"]) for model in summary["models"]]
        for metric in dict.fromkeys(metric for cell in cells if cell for metric in cell["metrics"]):
            figures = [figure(cell["metrics"].get(metric) if cell else None) for cell in cells]
            yield column["title"], metric_name(metric), figures


def chosen_lines(summary: Mapping[str, Any]) -> list[str]:
    """Say which grid point stands for each model on each task."""
    lines = []
    for model in summary["models"]:
        for task, choice in model["chosen"].items():
            settings, points = choice["settings"], choice["points"]
            runs = f"{choice['runs']} of {choice['wanted']} runs" if choice["runs"] < choice["wanted"] else (
                f"{choice['runs']} runs" if choice["runs"] > 1 else "1 run"
            )  # fmt: skip
            if "learning_rate" not in settings:
                lines.append(f"{model['name']}, {task}: nothing trained, {settings['length']} tokens")
                continue
            lines.append(
                f"{model['name']}, {task}: rate {settings['learning_rate']:g}, {settings['epochs']:g} "
                f"epoch{'' if settings['epochs'] == 1 else 's'}, batch {settings['batch_size']}, "
                f"{settings['length']} tokens, {runs}, best of {points} point{'' if points == 1 else 's'}"
            )
    return lines


def figure(cell: Mapping[str, Any] | None) -> str:
    """Write a mean with its deviation, where there is one."""
    if cell is None:
        return NOTHING
    deviation = cell.get("deviation")
    return f"{cell['mean']:.1f}" if deviation is None else f"{cell['mean']:.1f} ± {deviation:.1f}"


def metric_name(metric: str) -> str:
    """Return a metric as tables head it."""
    return METRIC_NAMES.get(metric, metric.replace("_", " "))


def source_of(row: Mapping[str, Any]) -> str:
    """Say where a published row is from, and on which split."""
    split = {"development": "dev", "test": "test"}.get(row["split"])
    return f"{PAPER_NAMES[row['paper']]}, table {row['table']}" + (f", {split}" if split else "")


def _published_row(row: Mapping[str, Any], keys: Sequence[str], averages: Sequence[str]) -> GridRow:
    of = f" of {row['teacher']}" if row["teacher"] else ""
    found = [_printed(row["columns"].get(key)) for key in keys]
    found += [_printed(row[name]) + (COMPUTED if name in row.get("computed", ()) else "") for name in averages]
    label = f"{row['model']}{of}, {row['shape']} ({source_of(row)})"
    return GridRow("published", label, tuple(found))


def _printed(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f}"


def _average_of(summary: Mapping[str, Any], name: str) -> str:
    """Say of how many columns an average is, and whether the paper's is of more."""
    found = [model["averages"][name] for model in summary["models"] if model["averages"][name]]
    counts = sorted({len(cell["of"]) for cell in found})
    shown = "–".join(str(count) for count in counts)
    return f"of {shown}" if all(cell["complete"] for cell in found) else f"of {shown} only"
