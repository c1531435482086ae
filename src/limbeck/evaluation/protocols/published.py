"""Published figures: the rows of papers' tables, and which of them can be read beside a model."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple

from limbeck.core.studies import PublishedCost
from limbeck.evaluation.shipped_data import DATA, read_data_file

_PUBLISHED = DATA / "published"
PAPERS = ("minilm", "minilmv2", "elm", "mlkd_bert", "comparative_study")
MULTILINGUAL_FROM = 100_000
"""Tokens from which a vocabulary is taken for a multilingual one: mBERT's is 119,547, XLM-R's 250,002."""


class ColumnMetric(NamedTuple):
    """A column of scores by one metric; a column is a task, `task-m`, `task-mm`, or `task.language`."""

    column: str
    metric: str


class PublishedShape(NamedTuple):
    """What tells whether figures of two models can be compared.

    Attributes:
        size: Layers x hidden width, for example `"6x384"`.
        multilingual: Whether the vocabulary is.
    """

    size: str
    multilingual: bool


@dataclass(frozen=True)
class PublishedRow:
    """One row of a paper's table.

    Attributes:
        paper: One of `PAPERS`.
        table: Number of the table in the paper.
        model: Name of the model in the paper.
        teacher: The model it was distilled from; None where it was not.
        distilled: `"task"` for a student that was distilled on each task, from a teacher fine-tuned on it; None for all
            others, whether they were distilled on text or not at all.
        shape: Layers x hidden width, for example `"6x384"`.
        multilingual: Whether its vocabulary is.
        split: `"development"`, `"test"` (a leaderboard's, for GLUE), or `"unstated"`.
        scores: Column and metric to percent.
        average: The printed average; None without one.
        averaged: The columns, with their metrics, that the printed average is over.
        average_without_cola: The printed average without CoLA; None without one.
    """

    paper: str
    table: str
    model: str
    teacher: str | None
    distilled: str | None
    shape: str
    multilingual: bool
    split: str
    scores: Mapping[ColumnMetric, float]
    average: float | None
    averaged: tuple[ColumnMetric, ...]
    average_without_cola: float | None


@cache
def read_rows(paper: str) -> tuple[PublishedRow, ...]:
    """Read all rows of a paper's score tables, in the order of the paper.

    Args:
        paper: One of `PAPERS`.
    """
    rows: list[PublishedRow] = []
    for table in read_data_file(_PUBLISHED / f"{paper}.yaml")["tables"]:
        rows += _table_rows(paper, table)
    return tuple(rows)


@cache
def read_costs(paper: str) -> tuple[PublishedCost, ...]:
    """Read all rows of a paper's cost tables, in the order of the paper; empty where it has none.

    Args:
        paper: One of `PAPERS`.
    """
    costs = []
    for table in read_data_file(_PUBLISHED / f"{paper}.yaml").get("costs", ()):
        for row in table["rows"]:
            values = map(float, row["values"])
            costs.append(
                PublishedCost(
                    paper=paper,
                    table=table["table"],
                    shape=row["shape"],
                    multilingual=table.get("multilingual", False),
                    device=table["device"],
                    task=table.get("task"),
                    values=dict(zip(table["columns"], values, strict=True)),
                )
            )
    return tuple(costs)


def _table_rows(paper: str, table: Mapping[str, Any]) -> Iterator[PublishedRow]:
    """Iterate over the rows of a score table.

    Args:
        paper: One of `PAPERS`.
        table: Plain values of its file; a field that a row does not have is that of its table.
    """
    columns = [_parse_column(text) for text in table["columns"]]
    averaged = tuple(_parse_column(text) for text in table.get("averaged", table["columns"]))
    field_names = [field.name for field in fields(PublishedRow)]
    for row in table["rows"]:
        scores = {}
        for column, value in zip(columns, row["scores"], strict=True):
            if value is not None:
                scores[column] = float(value)
        # Some averages are a column of their own too, beside which measured scores can stand.
        average = row.get("average")
        if "average_of" in table and average is not None:
            scores[_parse_column(table["average_of"])] = average

        # A field that neither the row nor its table has is None.
        values = {name: row.get(name, table.get(name)) for name in field_names}
        values["paper"] = paper
        values["multilingual"] = table.get("multilingual", False)
        values["scores"] = scores
        values["averaged"] = averaged
        yield PublishedRow(**values)


def _parse_column(text: str) -> ColumnMetric:
    """Return the column and the metric of, for example, `mrpc f1`."""
    column, metric = text.split()
    return ColumnMetric(column, metric)


def matching_rows(
    shapes: Iterable[tuple[str, int]],
    columns: Collection[ColumnMetric],
    papers: Iterable[str] = PAPERS,
    *,
    on_task: Iterable[tuple[str, int]] = (),
) -> list[PublishedRow]:
    """Find the published rows that can be read beside models.

    Args:
        shapes: For each model, layers x hidden width (such as `"6x384"`) and the tokens in its vocabulary.
        columns: The columns that were measured, each with its metric; a row with none of them, printed under the same
            metric, is left out.
        papers: Papers whose rows are searched, in this order.
        on_task: The shapes, in the same form, of those models that were distilled on a task. Published rows of students
            that were distilled on each task are found for these shapes only.
    """
    shapes_of_all = _published_shapes(shapes)
    shapes_on_task = _published_shapes(on_task)
    measured = set(columns)
    rows = []
    for paper in papers:
        for row in read_rows(paper):
            accepted_shapes = shapes_of_all
            if row.distilled == "task":
                accepted_shapes = shapes_on_task
            has_shape = PublishedShape(row.shape, row.multilingual) in accepted_shapes
            has_measured_column = not measured.isdisjoint(row.scores)
            if has_shape and has_measured_column:
                rows.append(row)
    return rows


def matching_costs(shapes: Iterable[tuple[str, int]]) -> list[PublishedCost]:
    """Find the published costs of models of the same shapes; see `matching_rows`."""
    accepted = _published_shapes(shapes)
    costs: list[PublishedCost] = []
    for paper in PAPERS:
        costs += [cost for cost in read_costs(paper) if PublishedShape(cost.shape, cost.multilingual) in accepted]
    return costs


def _published_shapes(shapes: Iterable[tuple[str, int]]) -> set[PublishedShape]:
    """Return the shapes of models as published rows have them.

    Args:
        shapes: (layers x hidden width, tokens in the vocabulary) each.
    """
    return {PublishedShape(size, vocabulary >= MULTILINGUAL_FROM) for size, vocabulary in shapes}
