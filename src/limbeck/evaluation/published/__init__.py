"""What the papers printed: rows of their tables, to stand beside one's own."""

from limbeck.evaluation.published.matching import matching_costs, matching_rows
from limbeck.evaluation.published.reader import PAPERS, PublishedCost, PublishedRow, read_costs, read_rows

__all__ = [
    "PAPERS",
    "PublishedCost",
    "PublishedRow",
    "matching_costs",
    "matching_rows",
    "read_costs",
    "read_rows",
]
