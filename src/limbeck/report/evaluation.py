"""What a report says of an evaluation: its tables, a bar for every model and task, costs, what failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from limbeck.evaluation.grid_summary import FINISHED
from limbeck.report.content import NOTHING, Block, Figure, Notes, Section, Steps, Table, guarded
from limbeck.report.evaluation_tables import (
    GridRow,
    chosen_lines,
    cost_sections,
    detail_rows,
    evaluation_grid,
    figure,
    metric_name,
)
from limbeck.report.figures import Measured, bars_figure, quality_figure
from limbeck.report.findings import EvaluationFound, Record
from limbeck.report.plots import Bar, BarGroup
from limbeck.report.records import last_part, mapping, number, text, texts, without_path
from limbeck.report.run import provenance_blocks

_MOST_CELLS = 100


def evaluation_sections(found: EvaluationFound) -> list[Section]:
    """Lay out an evaluation; of one that is not finished its cells."""
    return [
        *guarded("What was done", lambda: _flow(found)),
        *(
            [
                *guarded("Scores", lambda: score_blocks(found.summary)),
                *guarded("Cost", lambda: cost_blocks(found.summary)),
                *guarded("All metrics", lambda: _details(found.summary)),
            ]
            if found.summary
            else guarded("Cells", lambda: _cells(found.cells))
        ),
        *guarded("Notes", lambda: _notes(found.summary)),
        *guarded("Provenance", lambda: _provenance(found)),
    ]


def score_blocks(summary: Record) -> Iterator[Block]:
    """Show the main table, and its figures as bars."""
    if not summary["columns"]:
        yield Notes(("No task was evaluated.",))
        return
    grid = evaluation_grid(summary)
    headings = ("", *(f"{title} ({metric})" for title, metric in grid.headings))
    measured = [row for row in grid.rows if row.kind != "published"]
    rows = tuple((_row_name(row), *row.cells) for row in measured)
    strong = tuple(index for index, row in enumerate(measured) if row.kind == "model")
    yield Table("Scores in percent; ± is the deviation over seeds", headings, rows, strong=strong)
    yield task_bars(summary, [(model["name"], model["columns"]) for model in summary["models"]])
    models = _measured(summary)
    if len(models) > 1:
        yield quality_figure([one for one, _ in models], models[0][1], _pass(summary["costs"]))
    published = tuple((row.label, *row.cells) for row in grid.rows if row.kind == "published")
    if published:
        yield Table("Published, of models of the same shapes", headings, published, folded=True)


def _row_name(row: GridRow) -> str:
    """Name a row by the last part of its model; a retention stands below its model."""
    return last_part(row.label) if row.kind == "model" else f"↳ % of {last_part(row.label.removeprefix('% of '))}"


def task_bars(summary: Record, models: Sequence[tuple[str, Record]]) -> Figure:
    """Draw a bar for every model and task, with its deviation.

    Args:
        summary: With the `columns`.
        models: Names, with their figures by column.
    """
    groups = []
    for column in summary["columns"]:
        cells = [(name, figures.get(column["key"])) for name, figures in models]
        bars = [
            Bar(last_part(name), cell["mean"], cell.get("deviation"), style, figure(cell))
            for style, (name, cell) in enumerate(cells)
            if cell is not None
        ]
        if bars and not column["detail"]:
            groups.append(BarGroup(f"{column['title']} ({metric_name(column['metric'])})", bars))
    return bars_figure("Scores by task", groups, "percent", caption="Whiskers are the deviation over seeds.")


def cost_blocks(summary: Record) -> Iterator[Block]:
    """Show sizes and speed, where they were measured."""
    costs = summary.get("costs")
    if costs is not None:
        for heading, headings, body in cost_sections(costs):
            rows = tuple((without_path(row[0]), *row[1:]) for row in body)
            yield Table(heading, tuple(headings), rows, words=(1,))


def cost_latency(costs: Record, model: str) -> float | None:
    """Return the median latency of a model at the first batch size and length that was measured."""
    rows = [row for row in costs["timings"] if row["model"] == model]
    return float(rows[0]["median_ms"]) if rows else None


def _pass(costs: Record) -> str:
    row = costs["timings"][0]
    return f"batch {row['batch']}, {row['length']} tokens, {costs['machine']['device']}"


def _measured(summary: Record) -> list[tuple[Measured, str]]:
    """The models whose latency and average, or only score, are known; with what the score is."""
    costs = summary.get("costs")
    if costs is None:
        return []
    averages = [(name, title) for name, title in (("without_cola", "average without CoLA"), ("average", "average"))]
    columns = [("columns", c["key"], c["title"]) for c in summary["columns"] if not c["detail"]]
    for place, key, title in [*(("averages", *pair) for pair in averages), *columns]:
        found = []
        for index, model in enumerate(summary["models"]):
            cell, latency = model[place].get(key), cost_latency(costs, model["name"])
            if cell is not None and latency is not None:
                found.append(
                    (Measured(last_part(model["name"]), latency, cell["mean"], index == 0), f"{title}, percent")
                )
        if len(found) > 1:
            return found
    return []


def _flow(found: EvaluationFound) -> Iterator[Block]:
    models = list(dict.fromkeys(text(cell, "model") for cell in found.cells))
    tasks = list(dict.fromkeys(text(cell, "task") for cell in found.cells))
    settings = ", ".join(texts(found.asked, "set"))
    yield Steps(
        (
            ("Models", ", ".join(map(last_part, models)) or "none"),
            ("Tasks", ", ".join(tasks) or "none"),
            ("Protocol", ", ".join(filter(None, [text(found.asked, "preset"), settings])) or "not recorded"),
        )
    )
    failed = [cell for cell in found.cells if cell.get("status") != FINISHED]
    warnings = [*found.problems]
    if not found.summary:
        warnings.append("The evaluation is not finished: no table is there yet. The same command goes on with it.")
    warnings += [
        f"A cell failed: {text(cell, 'model')} on {text(cell, 'task')}: {text(cell, 'error')}" for cell in failed
    ]
    if warnings:
        yield Notes(tuple(warnings[:20]), warning=True)


def _details(summary: Record) -> Iterator[Block]:
    rows = tuple((title, metric, *figures) for title, metric, figures in detail_rows(summary))
    if rows:
        names = [last_part(model["name"]) for model in summary["models"]]
        yield Table("Every metric, in percent", ("", "Metric", *names), rows, words=(1,))
        yield Notes(tuple(chosen_lines(summary)))


def _cells(cells: Sequence[Record]) -> Iterator[Block]:
    rows = []
    for cell in cells[:_MOST_CELLS]:
        scores = "; ".join(
            f"{metric_name(str(metric))} {100 * value:.1f}"
            for metrics in mapping(cell, "scores").values()
            for metric, value in _page_numbers(metrics)
        )
        named = [text(cell, name) or NOTHING for name in ("model", "task", "seed", "status")]
        seconds = number(cell, "seconds")
        rows.append(
            (*named, scores or text(cell, "error") or NOTHING, NOTHING if seconds is None else f"{seconds:,.0f}")
        )
    headings = ("Model", "Task", "Seed", "Status", "Scores, percent", "Seconds")
    yield Table("Cells", headings, tuple(rows), words=(1, 3, 4), left_out=max(0, len(cells) - _MOST_CELLS))


def _page_numbers(metrics: Any) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items() if isinstance(metrics, Mapping) else ():
        if (found := number({"": value}, "")) is not None:
            yield name, found


def _notes(summary: Record) -> Iterator[Block]:
    if notes := texts(summary, "notes"):
        yield Notes(tuple(notes))


def _provenance(found: EvaluationFound) -> Iterator[Block]:
    """An evaluation keeps with each cell what it ran on: say it of the last."""
    cell = found.cells[-1] if found.cells else {}
    record = {
        "versions": mapping(cell, "versions"),
        "git_commit": text(cell, "commit"),
        "hardware": {"device": text(cell, "device")},
        "updated": text(cell, "created"),
    }
    yield from provenance_blocks(record, found.folder)
    models = {(text(row, "model"), text(row, "model_fingerprint")): text(row, "model") for row in found.cells}
    data = {(text(row, "task"), text(row, "data_fingerprint")): text(row, "task") for row in found.cells}
    rows = [("model", name, mark) for name, mark in models if mark] + [
        ("task", name, mark) for name, mark in data if mark
    ]
    if rows:
        yield Table("Fingerprints", ("", "Name", "Fingerprint"), tuple(rows), words=(1, 2))
