"""The tables of what models cost, as MiniLM's table 4 and MLKD-BERT's table 3 have them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

# The rows and columns that every form of an evaluation's table has, from its summary.


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
        summary: As `limbeck.evaluation.grid_summary.summarise` gives it.
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


Section = tuple[str, list[str], list[list[str]]]


def cost_sections(costs: Mapping[str, Any]) -> Iterator[Section]:
    """Go through the tables: heading, headings of the columns, rows.

    Args:
        costs: As `limbeck.benchmark.model.measure_costs` gives them.
    """
    lengths = list(costs["models"][0]["megaflops_per_token"])
    flops = [f"Mflop per token, {length} tokens" for length in lengths]
    yield (
        "Size",
        ["", "Shape", "Embedding (M)", "Transformer (M)", "All (M)", "Weights (MB)", *flops],
        [
            [
                model["model"],
                model["shape"],
                *(_millions(model[f"{part}parameters"]) for part in ("embedding_", "transformer_", "")),
                f"{model['megabytes']:.1f}",
                *(f"{model['megaflops_per_token'][length]:.1f}" for length in lengths),
            ]
            for model in costs["models"]
        ],
    )
    device = costs["machine"]["device"]
    yield (
        f"Speed on {device}",
        ["", "Batch", "Tokens", "Median (ms)", "10–90 % (ms)", "Sentences per s", "Tokens per s", "Speedup"],
        [
            [
                row["model"],
                str(row["batch"]),
                str(row["length"]),
                f"{row['median_ms']:.2f}",
                f"{row['p10_ms']:.2f}–{row['p90_ms']:.2f}",
                f"{row['sentences_per_second']:.0f}",
                f"{row['tokens_per_second']:.0f}",
                NOTHING if row["speedup"] is None else f"{row['speedup']:.2f}x",
            ]
            for row in costs["timings"]
        ],
    )
    # Nobody asks what papers measured of the first model's shape alone: the others are compared with it.
    compared = {model["shape"].split(",")[0].split()[-1] for model in costs["models"][1:] or costs["models"]}
    for paper, table, rows in _published(costs["published"]):
        if not any(row["shape"] in compared for row in rows):
            continue
        names = list(rows[0]["values"])
        heading = f"{PAPER_NAMES[paper]}, table {table} ({rows[0]['device']})"
        tasks = [[row["task"] or NOTHING] for row in rows] if any(row["task"] for row in rows) else [[]] * len(rows)
        yield (
            heading,
            ["", *(["Texts of"] if tasks[0] else []), *names],
            [
                [row["shape"], *task, *(f"{row['values'][name]:g}" for name in names)]
                for row, task in zip(rows, tasks, strict=True)
            ],
        )


def cost_tables(costs: Mapping[str, Any]) -> RenderableType:
    """Return the tables for the terminal."""
    parts: list[RenderableType] = []
    for heading, headings, body in cost_sections(costs):
        table = Table(box=box.SIMPLE_HEAVY, pad_edge=False, collapse_padding=True)
        for index, name in enumerate(headings):
            # Names may be folded, figures not.
            whole = max(len(row[index]) for row in body) if index > 1 else None
            table.add_column(name, justify="left" if index == 0 else "right", overflow="fold", min_width=whole)
        for row in body:
            table.add_row(*(Text(cell) for cell in row))
        parts += [Text(heading, style="bold"), table]
    return Group(*parts)


def _published(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, list[Mapping[str, Any]]]]:
    """Gather the rows of each paper's table."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["paper"], row["table"]), []).append(row)
    for (paper, table), found in groups.items():
        yield paper, table, found


def _millions(count: int) -> str:
    return f"{count / 1e6:.2f}"


# The tables of `limbeck evaluate`, for the terminal, Markdown, CSV and JSON, from an evaluation's summary.


_STYLES = {"model": "", "retention": "dim", "published": "cyan"}
_LABEL_WIDTH, _CELL_WIDTH = 30, 13
_MOST_PUBLISHED = 6
STEM = "evaluation_table"


def evaluation_table(summary: Mapping[str, Any]) -> RenderableType:
    """Return the main table for the terminal, in blocks of as many columns as fit, with its notes in short below.

    Of the published rows those with the most columns are shown; the files have them all, and every note.
    """
    notes = [Text(note, style="dim") for note in summary["notes_in_short"]]
    if len(notes) < len(summary["notes"]):
        notes.append(Text(f"All {len(summary['notes'])} notes are in the files.", style="dim"))
    return Group(Text(_title(summary), style="bold"), _Blocks(evaluation_grid(summary)), *notes)


class _Blocks:
    """The grid, cut to the width of the console."""

    def __init__(self, grid: EvaluationGrid) -> None:
        self._grid = grid
        published = [row for row in grid.rows if row.kind == "published"]
        fullest = sorted(published, key=lambda row: sum(cell == NOTHING for cell in row.cells))[:_MOST_PUBLISHED]
        self._rows = [row for row in grid.rows if row.kind != "published" or row in fullest]
        self._hidden = len(published) - len(fullest)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        at_once = max(1, (options.max_width - _LABEL_WIDTH) // _CELL_WIDTH)
        for start in range(0, len(self._grid.headings), at_once):
            yield self._block(slice(start, start + at_once))
        if self._hidden:
            yield Text(f"{self._hidden} more published rows are in the files.", style="dim")

    def _block(self, columns: slice) -> Table:
        table = Table(box=box.SIMPLE_HEAVY, pad_edge=False, collapse_padding=True)
        table.add_column("", overflow="fold", width=_LABEL_WIDTH)
        for title, metric in self._grid.headings[columns]:
            table.add_column(f"{title}\n{metric}", justify="right", min_width=_CELL_WIDTH - 2)
        previous = ""
        for row in self._rows:
            cells = row.cells[columns]
            if row.kind == "published" and all(cell == NOTHING for cell in cells):
                continue
            if row.kind == "published" and previous != "published":
                table.add_section()
            label = f"  {row.label}" if row.kind == "retention" else row.label
            table.add_row(Text(label), *(Text(cell) for cell in cells), style=_STYLES[row.kind])
            previous = row.kind
        return table


def evaluation_markdown(summary: Mapping[str, Any], costs: Mapping[str, Any] | None = None) -> str:
    """Return everything as Markdown: the main table, every metric, the chosen grid points, costs and notes.

    Args:
        summary: Of the evaluation; without columns only the costs are written.
        costs: As `limbeck.benchmark.model.measure_costs` gives them.
    """
    parts: list[str] = []
    if summary["columns"]:
        grid = evaluation_grid(summary)
        headings = ["", *(f"{title} ({metric})" for title, metric in grid.headings)]
        body = [[_emphasised(row.label, row.kind), *row.cells] for row in grid.rows]
        names = [model["name"] for model in summary["models"]]
        details = [[title, metric, *figures] for title, metric, figures in detail_rows(summary)]
        parts += [f"# {_title(summary)}", _markdown_table(headings, body)]
        parts += ["## All metrics", _markdown_table(["", "Metric", *names], details)]
        parts += ["## Grid points", "\n".join(f"- {line}" for line in chosen_lines(summary))]
    if costs is not None:
        for heading, headings, body in cost_sections(costs):
            parts += [f"## {heading}", _markdown_table(headings, body)]
    if summary["notes"]:
        parts += ["## Notes", "\n".join(f"- {note}" for note in summary["notes"])]
    return "\n\n".join(parts) + "\n"


def evaluation_csv(summary: Mapping[str, Any]) -> str:
    """Return every figure on a line of its own, unrounded: source, model, column, metric, mean, deviation, runs, and
    what share of the first model's score it is."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["source", "model", "column", "metric", "mean", "deviation", "runs", "retention"])
    for model in summary["models"]:
        for column in summary["columns"]:
            cell = model["columns"].get(column["key"])
            for metric, figures in (cell["metrics"] if cell else {}).items():
                kept = model["retention"].get(column["key"]) if metric == column["metric"] else None
                writer.writerow(["measured", model["name"], column["key"], metric, *_numbers(figures), _text(kept)])
        for name, figures in model["averages"].items():
            if figures is not None:
                kept = model["retention"].get(name)
                writer.writerow(["measured", model["name"], name, "", *_numbers(figures), _text(kept)])
    metrics = {column["key"]: column["metric"] for column in summary["columns"]}
    for row in summary["published"]:
        source = f"{row['paper']} table {row['table']}"
        for key, value in row["columns"].items():
            writer.writerow([source, f"{row['model']} {row['shape']}", key, metrics[key], value, "", "", ""])
    return buffer.getvalue()


def write_evaluation(summary: Mapping[str, Any], folder: Path, costs: Mapping[str, Any] | None = None) -> list[Path]:
    """Write the tables as Markdown, CSV and JSON.

    Args:
        summary: Of the evaluation.
        folder: An existing folder.
        costs: What the models cost, where it was measured.

    Returns:
        The files.
    """
    whole = {**summary, **({"costs": costs} if costs is not None else {})}
    texts = {
        ".md": evaluation_markdown(summary, costs),
        ".csv": evaluation_csv(summary),
        ".json": json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }
    paths = [folder / f"{STEM}{suffix}" for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def _title(summary: Mapping[str, Any]) -> str:
    return f"Evaluation by the preset '{summary['preset']}', in percent"


def _emphasised(label: str, kind: str) -> str:
    return {"model": f"**{label}**", "retention": f"*{label}*"}.get(kind, label)


def _markdown_table(headings: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [_markdown_row(headings), "|" + "---|" + "---:|" * (len(headings) - 1)]
    return "\n".join([*lines, *(_markdown_row(row) for row in body)])


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _numbers(figures: Mapping[str, Any]) -> list[str | float]:
    return [figures["mean"], _text(figures["deviation"]), len(figures["runs"])]


def _text(value: float | None) -> str | float:
    return "" if value is None else value
