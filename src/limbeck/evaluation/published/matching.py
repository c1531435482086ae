"""Which published rows belong beside a model: those of its shape, kind of vocabulary and tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from limbeck.evaluation.published.reader import PAPERS, PublishedCost, PublishedRow, read_costs, read_rows

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
