"""Published figures: the rows of papers' tables, and which of them belong beside a model."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from limbeck.core.studies import PublishedCost
from limbeck.evaluation.data_files import DATA, read_data_file

_PUBLISHED = DATA / "published"
PAPERS = ("minilm", "minilmv2", "elm", "mlkd_bert", "comparative_study")


@dataclass(frozen=True)
class PublishedRow:
    """One row of a paper's table.

    Attributes:
        paper: One of `PAPERS`.
        table: Its number there.
        model: As the paper calls it.
        teacher: The model it was distilled from; None where it was not.
        distilled: `"task"` of a student that was distilled on each task, from a teacher fine-tuned on it; None of all
            others, whether distilled on text or not at all.
        shape: Layers x hidden width, for example `"6x384"`.
        multilingual: Whether its vocabulary is.
        split: `"development"`, `"test"` (a leaderboard's, for GLUE), or `"unstated"`.
        scores: (column, metric) -> percent; a column is a task, `task-m`, `task-mm`, or `task.language`.
        average: As printed; None without one.
        averaged: The (column, metric)s that the printed average is over.
        average_without_cola: As printed; None without one.
    """

    paper: str
    table: str
    model: str
    teacher: str | None
    distilled: str | None
    shape: str
    multilingual: bool
    split: str
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
    return tuple(
        row for table in read_data_file(_PUBLISHED / f"{paper}.yaml")["tables"] for row in _table_rows(paper, table)
    )


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
        for table in read_data_file(_PUBLISHED / f"{paper}.yaml").get("costs", ())
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


MULTILINGUAL_FROM = 100_000
"""Tokens from which a vocabulary is taken for a multilingual one: mBERT's is 119,547, XLM-R's 250,002."""


def matching_rows(
    shapes: Iterable[tuple[str, int]],
    columns: Collection[tuple[str, str]],
    papers: Iterable[str] = PAPERS,
    *,
    on_task: Iterable[tuple[str, int]] = (),
) -> list[PublishedRow]:
    """Find the published rows that can be read beside models.

    Args:
        shapes: Of every model, (layers x hidden width such as `"6x384"`, tokens in its vocabulary).
        columns: The (column, metric)s that were measured; a row with none of them, printed under the same metric, is
            left out.
        papers: Whose rows; in this order.
        on_task: Of the models that were distilled on a task, likewise; rows of task-distilled students stand beside
            these alone.
    """
    wanted, also = ({(shape, vocabulary >= MULTILINGUAL_FROM) for shape, vocabulary in of} for of in (shapes, on_task))
    return [
        row
        for paper in papers
        for row in read_rows(paper)
        if (row.shape, row.multilingual) in (also if row.distilled else wanted)
        and any(column in row.scores for column in columns)
    ]


def matching_costs(shapes: Iterable[tuple[str, int]]) -> list[PublishedCost]:
    """Find the published costs of models of the same shapes; see `matching_rows`."""
    wanted = {(shape, vocabulary >= MULTILINGUAL_FROM) for shape, vocabulary in shapes}
    return [cost for paper in PAPERS for cost in read_costs(paper) if (cost.shape, cost.multilingual) in wanted]
