"""Tables of an evaluation on tasks and of the costs of models: for reports, the terminal and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from limbeck.core import blocks
from limbeck.core.markdown import markdown_file
from limbeck.core.records import text_of
from limbeck.core.studies import Column, Costs, Evaluation, Figure, PublishedCost, PublishedScores, Scores

STEM = "evaluation_table"
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
_COMPUTED = " †"
"""After an average of published figures that is not printed in their paper."""
_AVERAGES = {"average": "Average", "without_cola": "without CoLA"}
_SPLITS = {"development": ", dev", "test": ", test"}
_PUBLISHED_ON_CONSOLE = 6


def metric_name(metric: str) -> str:
    """Return a metric as tables head it."""
    return METRIC_NAMES.get(metric, metric.replace("_", " "))


@dataclass(frozen=True)
class ScoreColumns:
    """The columns of a table of scores: tasks by their keys, then averages.

    Attributes:
        keys: Of the tasks.
        averages: Names of the averages.
        headings: With the metric, or the number of tasks, in the second line.
    """

    keys: tuple[str, ...]
    averages: tuple[str, ...]
    headings: tuple[str, ...]

    @classmethod
    def of(cls, columns: Sequence[Column], models: Sequence[Scores]) -> ScoreColumns:
        """Choose the columns that are shown: all but details, and averages of any model."""
        shown = [column for column in columns if not column.detail]
        averages = [name for name in _AVERAGES if any(getattr(model.averages, name) for model in models)]
        headings = [f"{column.title}\n{metric_name(column.metric)}" for column in shown]
        headings += [f"{_AVERAGES[name]}\n{_average_of(models, name)}" for name in averages]
        return cls(tuple(column.key for column in shown), tuple(averages), tuple(headings))

    def figures(self, model: Scores) -> tuple[blocks.Cell, ...]:
        """Return the scores of a model."""
        averages = (getattr(model.averages, name) for name in self.averages)
        return tuple(blocks.mean(found) for found in (*map(model.columns.get, self.keys), *averages))

    def retention(self, model: Scores) -> tuple[blocks.Cell, ...]:
        """Return the share that a model keeps of the first model's scores."""
        return tuple(blocks.Cell(model.retention.get(key), "{:.1f} %") for key in (*self.keys, *self.averages))

    def published(self, row: PublishedScores) -> tuple[blocks.AnyCell, ...]:
        """Return the label and scores of a row that a paper published."""
        of = f" of {row.teacher}" if row.teacher else ""
        source = f"{PAPER_NAMES[row.paper]}, table {row.table}{_SPLITS.get(row.split, '')}"
        cells = [blocks.Cell(row.columns.get(key), "{:.1f}") for key in self.keys]
        for name in self.averages:
            cell = blocks.Cell(getattr(row, name), "{:.1f}")
            cells.append(blocks.Cell(f"{cell}{_COMPUTED}") if name in row.computed else cell)
        return f"{row.model}{of}, {row.shape} ({source})", *cells


def _average_of(models: Sequence[Scores], name: str) -> str:
    """Say of how many columns an average is, and whether the paper's is of more."""
    found = [average for model in models if (average := getattr(model.averages, name))]
    shown = "–".join(str(count) for count in sorted({len(average.of) for average in found}))
    return f"of {shown}" if all(average.complete for average in found) else f"of {shown} only"


def scores_table(summary: Evaluation) -> blocks.Table:
    """Lay out the main table: tasks as columns, models as rows, averages last, then published rows."""
    columns = ScoreColumns.of(summary.columns, summary.models)
    rows: list[tuple[blocks.AnyCell, ...]] = []
    strong, faint = [], []
    for model in summary.models:
        strong.append(len(rows))
        rows.append((blocks.Cell(model.name, mark="bold"), *columns.figures(model)))
        if model.retention:
            faint.append(len(rows))
            rows.append((blocks.Cell(f"  % of {summary.models[0].name}", mark="italic"), *columns.retention(model)))
    published = range(len(rows), len(rows) + len(summary.published))
    rows += map(columns.published, summary.published)
    return blocks.Table(
        "",
        ("", *columns.headings),
        tuple(rows),
        words=(0,),
        strong=tuple(strong),
        faint=tuple(faint),
        published=tuple(published),
        layout=blocks.Layout(cut=30, narrowest=11, apart=True),
    )


def metrics_table(summary: Evaluation) -> blocks.Table:
    """Lay out every metric of every column, a figure of each model."""
    rows: list[tuple[blocks.AnyCell, ...]] = []
    for column in summary.columns:
        cells = [model.columns.get(column.key) for model in summary.models]
        for metric in dict.fromkeys(metric for cell in cells if cell for metric in cell.metrics):
            figures = (blocks.mean(cell.metrics.get(metric) if cell else None) for cell in cells)
            rows.append((column.title, metric_name(metric), *figures))
    names = (model.name for model in summary.models)
    return blocks.Table("Every metric, in percent", ("", "Metric", *names), tuple(rows), words=(0,))


def chosen_lines(summary: Evaluation) -> Iterator[str]:
    """Name the grid point that stands for each model on each task."""
    for model in summary.models:
        for task, choice in model.chosen.items():
            settings, points = choice.settings, choice.points
            of = f" of {choice.wanted}" if choice.runs < choice.wanted else ""
            runs = f"{choice.runs}{of} run{'' if choice.runs == 1 and not of else 's'}"
            if "learning_rate" not in settings:
                yield f"{model.name}, {task}: nothing trained, {settings['length']} tokens"
                continue
            yield (
                f"{model.name}, {task}: rate {settings['learning_rate']:g}, {settings['epochs']:g} "
                f"epoch{'' if settings['epochs'] == 1 else 's'}, batch {settings['batch_size']}, "
                f"{settings['length']} tokens, {runs}, best of {points} point{'' if points == 1 else 's'}"
            )


# The costs of models, as MiniLM's table 4 and MLKD-BERT's table 3 have them.


def cost_tables(costs: Costs) -> Iterator[blocks.Table]:
    """Lay out sizes, speed, and the speeds that papers published of models of the same shapes."""
    layout = blocks.Layout(whole_from=2)
    lengths = list(costs.models[0].megaflops_per_token)
    sizes: tuple[tuple[blocks.AnyCell, ...], ...] = tuple(
        (
            model.model,
            model.shape,
            *(
                blocks.Cell(None if count is None else count / 1e6, "{:.2f}")
                for count in (model.embedding_parameters, model.transformer_parameters, model.parameters)
            ),
            blocks.Cell(model.megabytes, "{:.1f}"),
            *(blocks.Cell(model.megaflops_per_token[length], "{:.1f}") for length in lengths),
        )
        for model in costs.models
    )
    flops = [f"Mflop per token, {length} tokens" for length in lengths]
    headings = ("", "Shape", "Embedding (M)", "Transformer (M)", "All (M)", "Weights (MB)", *flops)
    yield blocks.Table("Size", headings, sizes, words=(0,), layout=layout)
    speeds: tuple[tuple[blocks.AnyCell, ...], ...] = tuple(
        (
            row.model,
            str(row.batch),
            str(row.length),
            blocks.Cell(row.median_ms, "{:.2f}"),
            f"{row.p10_ms:.2f}–{row.p90_ms:.2f}",
            blocks.Cell(row.sentences_per_second, "{:.0f}"),
            blocks.Cell(row.tokens_per_second, "{:.0f}"),
            blocks.Cell(row.speedup, "{:.2f}x"),
        )
        for row in costs.timings
    )
    headings = ("", "Batch", "Tokens", "Median (ms)", "10–90 % (ms)", "Sentences per s", "Tokens per s", "Speedup")
    yield blocks.Table(f"Speed on {costs.machine['device']}", headings, speeds, words=(0,), layout=layout)
    # Nobody asks for the figures that papers have of the first model's shape alone: the others are compared with it.
    compared = {model.shape.split(",")[0].split()[-1] for model in costs.models[1:] or costs.models}
    groups: dict[tuple[str, str], list[PublishedCost]] = {}
    for row in costs.published:
        groups.setdefault((row.paper, row.table), []).append(row)
    for (paper, table), rows in groups.items():
        if not any(row.shape in compared for row in rows):
            continue
        names = list(rows[0].values)
        tasks = any(row.task for row in rows)
        cells: tuple[tuple[blocks.AnyCell, ...], ...] = tuple(
            (
                row.shape,
                *([row.task or blocks.NOTHING] if tasks else []),
                *(blocks.Cell(row.values[name], "{:g}") for name in names),
            )
            for row in rows
        )
        title = f"{PAPER_NAMES[paper]}, table {table} ({rows[0].device})"
        yield blocks.Table(title, ("", *(["Texts of"] if tasks else []), *names), cells, words=(0,), layout=layout)


# The forms of the tables: for the terminal, Markdown, CSV and JSON.


def evaluation_table(summary: Mapping[str, Any]) -> RenderableType:
    """Return the main table for the terminal, with its notes in short below it.

    Of the published rows those with the most columns are shown; the files have them all, and every note.
    """
    record = Evaluation.read(summary)
    table = scores_table(record)
    fullest = sorted(table.published, key=lambda index: sum(str(cell) == blocks.NOTHING for cell in table.rows[index]))
    kept = [index for index in range(len(table.rows)) if index not in fullest[_PUBLISHED_ON_CONSOLE:]]
    shown = replace(
        table,
        caption=_title(record),
        rows=tuple(table.rows[index] for index in kept),
        published=tuple(range(len(table.rows) - len(table.published), len(kept))),
    )
    hidden = len(table.rows) - len(kept)
    notes = [f"{hidden} more published rows are in the files."] if hidden else []
    notes += record.notes_in_short
    if len(record.notes_in_short) < len(record.notes):
        notes.append(f"All {len(record.notes)} notes are in the files.")
    return blocks.console(shown, blocks.Notes(tuple(notes)))


def costs_table(costs: Mapping[str, Any]) -> RenderableType:
    """Return the tables of costs for the terminal."""
    return blocks.console(*cost_tables(Costs.read(costs)))


def evaluation_markdown(summary: Mapping[str, Any], costs: Mapping[str, Any] | None = None) -> str:
    """Return everything as Markdown: the main table, every metric, the chosen grid points, costs and notes.

    Args:
        summary: Of the evaluation; without columns only the costs are written.
        costs: As `limbeck.evaluation.grid_plan.measure_costs` gives them.
    """
    record = Evaluation.read(summary)
    sections = []
    if record.columns:
        sections = [
            blocks.Section("", (blocks.Paragraph(f"# {_title(record)}"), scores_table(record))),
            blocks.Section("All metrics", (metrics_table(record),)),
            blocks.Section("Grid points", (blocks.Notes(tuple(chosen_lines(record))),)),
        ]
    if costs is not None:
        sections += [blocks.Section(table.caption, (table,)) for table in cost_tables(Costs.read(costs))]
    return markdown_file("", [*sections, blocks.Section("Notes", (blocks.Notes(tuple(record.notes)),))])


def evaluation_csv(summary: Mapping[str, Any]) -> str:
    """Return every figure on a separate line, unrounded, with the share of the first model's score."""
    record = Evaluation.read(summary)
    rows: list[dict[str, Any]] = []
    for model in record.models:
        rows += [{"source": "measured", "model": model.name, **row} for row in csv_rows(record.columns, model)]
    metrics = {column.key: column.metric for column in record.columns}
    for paper in record.published:
        named = {"source": f"{paper.paper} table {paper.table}", "model": f"{paper.model} {paper.shape}"}
        rows += [{**named, "key": key, "metric": metrics[key], "mean": mean} for key, mean in paper.columns.items()]
    rows = [{**row, "column": row["key"]} for row in rows]
    return blocks.to_csv(("source", "model", "column", "metric", "mean", "deviation", "runs", "retention"), rows)


def csv_rows(columns: Sequence[Column], scores: Scores) -> Iterator[dict[str, Any]]:
    """Go through every metric of every column, then averages; main figures have their share of the first model's."""
    for column in columns:
        cell = scores.columns.get(column.key)
        for metric, found in (cell.metrics if cell else {}).items():
            kept = {"retention": scores.retention.get(column.key)} if metric == column.metric else {}
            yield {"key": column.key, "metric": metric, **numbers(found), **kept}
    for name, average in scores.averages.by_name.items():
        if average is not None:
            yield {"key": name, **numbers(average), "retention": scores.retention.get(name)}


def numbers(found: Figure) -> dict[str, Any]:
    """Return a figure as cells of a CSV table."""
    return {"mean": found.mean, "deviation": found.deviation, "runs": len(found.runs)}


def write_evaluation(summary: Mapping[str, Any], folder: Path, costs: Mapping[str, Any] | None = None) -> list[Path]:
    """Write the tables as Markdown, CSV and JSON.

    Args:
        summary: Of the evaluation.
        folder: An existing folder.
        costs: Of the models, where they were measured.

    Returns:
        The files.
    """
    whole = {**summary, **({"costs": costs} if costs is not None else {})}
    return write_tables(folder, STEM, evaluation_markdown(summary, costs), evaluation_csv(summary), whole)


def write_tables(folder: Path, stem: str, markdown: str, table: str, whole: Mapping[str, Any]) -> list[Path]:
    """Write tables as Markdown, CSV and JSON; return the files."""
    texts = {".md": markdown, ".csv": table, ".json": text_of(whole)}
    paths = [folder / f"{stem}{suffix}" for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def _title(summary: Evaluation) -> str:
    return f"Evaluation by the preset '{summary.preset}', in percent"
