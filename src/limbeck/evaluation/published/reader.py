"""Reading the published numbers from the files beside this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

PAPERS = ("minilm", "minilmv2", "elm", "mlkd_bert", "comparative_study")


@dataclass(frozen=True)
class PublishedRow:
    """One row of a paper's table.

    Attributes:
        paper: One of `PAPERS`.
        table: Its number there.
        model: As the paper calls it.
        teacher: What it was distilled from; None where it was not.
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


@dataclass(frozen=True)
class PublishedCost:
    """What a paper measured of a model of a shape.

    Attributes:
        paper: One of `PAPERS`.
        table: Its number there.
        shape: Layers x hidden width.
        multilingual: Whether its vocabulary is.
        device: What it was measured on, as far as the paper says.
        task: On whose texts; None where the paper does not say.
        values: Figure -> value, the unit in the figure's name.
    """

    paper: str
    table: str
    shape: str
    multilingual: bool
    device: str
    task: str | None
    values: Mapping[str, float]


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
        yield PublishedRow(
            paper=paper,
            table=table["table"],
            model=row["model"],
            teacher=row.get("teacher"),
            shape=row["shape"],
            parameters=row.get("parameters"),
            multilingual=table.get("multilingual", False),
            split=table["split"],
            runs=table.get("runs"),
            scores=scores,
            average=average,
            averaged=averaged,
            average_without_cola=row.get("average_without_cola"),
        )


def _column(text: str) -> tuple[str, str]:
    column, metric = text.split()
    return column, metric


@cache
def _read(paper: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name(f"{paper}.yaml").read_text(encoding="utf-8"))
    return found
