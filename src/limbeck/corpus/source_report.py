"""The report of everything that reading skipped or repaired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from limbeck.corpus.messages import safe_name

Item = TypeVar("Item")
EXAMPLES_PER_PROBLEM = 5
_EXAMPLES_SHOWN = 2
_EXAMPLES_BEGIN = " (such as "
"""Stands before the examples of a problem in its line."""
_EXAMPLES_END = ")"
"""Stands behind them."""

OTHER_COLUMN = "row without the column"
"""How the problem of a row begins that has no column of the text."""
_PLURALS = {
    OTHER_COLUMN: "rows without the column",
    "row of": "rows of",
    "row cut to": "rows cut to",
    "question cut to": "questions cut to",
    "development row that resembles a training row (it shares": (
        "development rows that resemble a training row (each shares"
    ),
    "held-out row that may": "held-out rows that may",
    "training row that is": "training rows that are",
}
"""Beginning of a problem to its plural. The cases of other problems are counted as `3 x line of invalid JSON`."""
_OF_READ_ROWS = ("row cut to", "development row", "held-out row", "training row")
"""Beginnings of problems of rows as models read them. In a ranking each of these rows is a query with a document."""
PAIR = "query-document pair"
"""The name of a row of a ranking."""
NAME_TEXT_COLUMN = "Name the column of the text with --text-column, or with corpus.text_column in a recipe"
"""The way out where the text is in another column."""


@dataclass
class SourceReport:
    """Counts of everything that reading skipped or repaired.

    Bad text never stops a build and never disappears silently: it ends up here, and here in the manifest.

    Args:
        counts: Number of cases of each problem, for example `{"line of invalid JSON": 3}`.
        examples: The first few places of each problem, for example `{"line of invalid JSON": ["a.jsonl:12"]}`.
        muted: Whether cases are left out for now, because the same text has been read before.
    """

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    muted: bool = False

    def note(self, problem: str, where: str, count: int = 1) -> None:
        """Count cases of a problem, and keep their place as an example if it is a new one and there are few yet.

        Args:
            problem: What is wrong, as a noun phrase.
            where: Where it is, such as `file:line`; empty for a problem that needs no example.
            count: Number of cases; with 0 nothing is noted.
        """
        if count <= 0 or self.muted:
            return
        self.counts[problem] = self.counts.get(problem, 0) + count
        places = self.examples.setdefault(problem, [])
        # Text may have millions of cases, so that a place is made printable only where it may be kept.
        if len(places) >= EXAMPLES_PER_PROBLEM:
            return
        place = safe_name(where)
        if place and place not in places:
            places.append(place)

    def merge(self, other: SourceReport) -> None:
        """Add the cases of another report to this one."""
        for problem, count in other.counts.items():
            self.counts[problem] = self.counts.get(problem, 0) + count
            places = self.examples.setdefault(problem, []) + other.examples.get(problem, [])
            self.examples[problem] = list(dict.fromkeys(places))[:EXAMPLES_PER_PROBLEM]

    def of_part(self, part: str) -> SourceReport:
        """Return a report whose problems name the part of the rows that they are of: `row cut to 64 tokens (training)`.

        Args:
            part: The part, such as `training`.
        """
        counts = {f"{problem} ({part})": count for problem, count in self.counts.items()}
        examples = {f"{problem} ({part})": list(places) for problem, places in self.examples.items()}
        return SourceReport(counts, examples)

    def lines(self, *, of_pairs: bool = False) -> list[str]:
        """Return one readable line per problem, the most frequent first; empty when all was well.

        Args:
            of_pairs: Whether the rows are those of a ranking: each is a query with one of its documents.
        """
        lines: list[str] = []
        most_frequent_first = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        for problem, count in most_frequent_first:
            line = counted_problem(count, problem, of_pairs=of_pairs)
            examples = self.examples.get(problem, [])[:_EXAMPLES_SHOWN]
            if examples:
                line += f"{_EXAMPLES_BEGIN}{', '.join(examples)}{_EXAMPLES_END}"
            lines.append(line)
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {"counts": dict(self.counts), "examples": _copy(self.examples)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SourceReport:
        """Return the report that `to_dict` wrote; empty for an empty mapping."""
        return cls(dict(values.get("counts", {})), _copy(values.get("examples", {})))


def counted_problem(count: float, problem: str, *, of_pairs: bool = False) -> str:
    """Return a number of cases of a problem: `3 rows cut to 64 tokens`, or `3 x line of invalid JSON`.

    Args:
        count: The number.
        problem: The problem, as a noun phrase in the singular.
        of_pairs: Whether the rows are those of a ranking.
    """
    words = f"x {problem}"
    for singular, plural in _PLURALS.items():
        if problem.startswith(singular):
            words = problem if count == 1 else plural + problem.removeprefix(singular)
    if of_pairs and problem.startswith(_OF_READ_ROWS):
        words = words.replace("row", PAIR)
    return f"{count:,.0f} {words}"


def without_examples(line: str) -> str:
    """Return a line of `SourceReport.lines` without its examples, which may quote the text."""
    beginning, _, _ = line.partition(_EXAMPLES_BEGIN)
    return beginning


@contextmanager
def muted(report: SourceReport) -> Iterator[None]:
    """Note no case within the block: its text is read again, and its cases were noted at the first time."""
    was_muted = report.muted
    report.muted = True
    try:
        yield
    finally:
        report.muted = was_muted


def items_behind(count: int, items: Iterable[Item], report: SourceReport) -> Iterator[Item]:
    """Iterate over all items but the first ones, which are read again without a second note of their cases.

    Args:
        count: Number of the first items.
        items: The items; to read one may note cases in the report.
        report: The report.
    """
    iterator = iter(items)
    with muted(report):
        for _ in islice(iterator, count):
            pass
    yield from iterator


def nothing_in(source: str, content: str, report: SourceReport) -> str:
    """Return the message for a source that holds nothing, with the problems that were counted.

    Args:
        source: Its name.
        content: What it should hold, such as `text`.
        report: The problems of the source.
    """
    message = f"The source '{safe_name(source)}' holds no {content}"
    problems = report.lines()
    if problems:
        message += f": {'; '.join(problems)}."
    else:
        message += ": its files have no rows. Give a source that has some."
    if any(problem.startswith(OTHER_COLUMN) for problem in report.counts):
        message += f" {NAME_TEXT_COLUMN}."
    return message


def _copy(examples: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {problem: list(places) for problem, places in examples.items()}
