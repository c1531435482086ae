"""Which published rows belong beside a model: those of its shape, kind of vocabulary and tasks."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, cast

from limbeck.core.studies import PublishedCost
from limbeck.core.yaml import read_document
from limbeck.evaluation.tasks import DATA

PAPERS = ("minilm", "minilmv2", "elm", "mlkd_bert", "comparative_study")


@dataclass(frozen=True)
class PublishedRow:
    """One row of a paper's table.

    Attributes:
        paper: One of `PAPERS`.
        table: Its number there.
        model: As the paper calls it.
        teacher: The model it was distilled from; None where it was not.
        shape: Layers x hidden width, for example `"6x384"`.
        parameters: In millions; None where the table does not say.
        multilingual: Whether its vocabulary is.
        split: `"development"`, `"test"` (a leaderboard's, for GLUE), or `"unstated"`.
        runs: Fine-tuning runs that the figures are means of; None where the paper does not say.
        scores: (column, metric) -> percent; a column is a task, `task-m`, `task-mm`, or `task.language`.
        average: As printed; None without one.
        averaged: The (column, metric)s that the printed average is over.
        average_without_cola: As printed; None without one.
    """

    paper: str
    table: str
    model: str
    teacher: str | None
    shape: str
    parameters: float | None
    multilingual: bool
    split: str
    runs: int | None
    scores: Mapping[tuple[str, str], float]
    average: float | None
    averaged: tuple[tuple[str, str], ...]
    average_without_cola: float | None


@cache
def read_rows(paper: str) -> tuple[PublishedRow, ...]:
    """Read all rows of a paper's score tables, in the order of the paper.

    Args:
        paper: One of `PAPERS`.
    """
    return tuple(row for table in _read(paper)["tables"] for row in _table_rows(paper, table))


@cache
def read_costs(paper: str) -> tuple[PublishedCost, ...]:
    """Read all rows of a paper's cost tables, in the order of the paper; empty where it has none.

    Args:
        paper: One of `PAPERS`.
    """
    return tuple(
        PublishedCost(
            paper=paper,
            table=table["table"],
            shape=row["shape"],
            multilingual=table.get("multilingual", False),
            device=table["device"],
            task=table.get("task"),
            values=dict(zip(table["columns"], map(float, row["values"]), strict=True)),
        )
        for table in _read(paper).get("costs", ())
        for row in table["rows"]
    )


def _table_rows(paper: str, table: Mapping[str, Any]) -> Iterator[PublishedRow]:
    columns = [_column(text) for text in table["columns"]]
    averaged = tuple(_column(text) for text in table.get("averaged", table["columns"]))
    for row in table["rows"]:
        pairs = zip(columns, row["scores"], strict=True)
        scores = {column: float(value) for column, value in pairs if value is not None}
        average = row.get("average")
        if "average_of" in table and average is not None:
            scores[_column(table["average_of"])] = average
        found = {field.name: row.get(field.name, table.get(field.name)) for field in fields(PublishedRow)}
        found |= {"paper": paper, "multilingual": table.get("multilingual", False)}
        yield PublishedRow(**(found | {"scores": scores, "averaged": averaged}))


def _column(text: str) -> tuple[str, str]:
    column, metric = text.split()
    return column, metric


@cache
def _read(paper: str) -> Mapping[str, Any]:
    path = DATA / "published" / f"{paper}.yaml"
    return cast(Mapping[str, Any], read_document(path, f"'{path}'", "install limbeck again."))


MULTILINGUAL_FROM = 100_000
"""Tokens from which a vocabulary is taken for a multilingual one: mBERT's is 119,547, XLM-R's 250,002."""


def matching_rows(
    shapes: Iterable[tuple[str, int]], columns: Collection[tuple[str, str]], papers: Iterable[str] = PAPERS
) -> list[PublishedRow]:
    """Find the published rows that can be read beside models.

    Args:
        shapes: Of every model, (layers x hidden width such as `"6x384"`, tokens in its vocabulary).
        columns: The (column, metric)s that were measured; a row with none of them, printed under the same metric, is
            left out.
        papers: Whose rows; in this order.
    """
    wanted = {(shape, vocabulary >= MULTILINGUAL_FROM) for shape, vocabulary in shapes}
    return [
        row
        for paper in papers
        for row in read_rows(paper)
        if (row.shape, row.multilingual) in wanted and any(column in row.scores for column in columns)
    ]


def matching_costs(shapes: Iterable[tuple[str, int]], papers: Iterable[str] = PAPERS) -> list[PublishedCost]:
    """Find the published costs of models of the same shapes; see `matching_rows`."""
    wanted = {(shape, vocabulary >= MULTILINGUAL_FROM) for shape, vocabulary in shapes}
    return [cost for paper in papers for cost in read_costs(paper) if (cost.shape, cost.multilingual) in wanted]
