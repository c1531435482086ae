"""The base of the views of searches: a view gives the results of one kind of search as words, tables and files.

A *candidate* is what a search tries: a layer mapping, a student's shape or a layer of the teacher. Each candidate
trains one student on a part of the text, and gets a score.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

from limbeck.core.blocks import Figure, Notes, Table
from limbeck.core.studies import Search
from limbeck.report.sections import Highlight

S = TypeVar("S", bound=Search)
ONE_SEED = "Each was trained once, with one seed: differences may be due to chance."
"""The caution on the scores of candidates."""


class SearchView(ABC, Generic[S]):
    """The results of one kind of search.

    The record of a search that is not finished holds the candidates that have a result so far.

    Attributes:
        TITLE: The heading of `search.md`.
    """

    TITLE: ClassVar[str]

    @abstractmethod
    def best(self, record: S) -> str:
        """Return the best candidate and its score in a few words; empty where no candidate has a score."""

    @abstractmethod
    def second_score(self, record: S) -> str:
        """Return the score of the second-best candidate in text; empty where there is none."""

    @abstractmethod
    def highlights(self, record: S) -> Iterator[Highlight]:
        """Yield the figures of the best candidate, and the number of candidates."""

    def result_line(self, record: S) -> str:
        """Return the best candidate and the score of the next one in sentences; empty without a score."""
        best = self.best(record)
        if not best:
            return ""
        line = f"Best candidate: {best}."
        second_score = self.second_score(record)
        if second_score:
            line += f" The next best has {second_score}."
        return f"{line} {ONE_SEED}"

    @abstractmethod
    def blocks(self, record: S) -> Iterator[Figure | Table | Notes]:
        """Draw and list the candidates, or state that none has a result yet."""

    @abstractmethod
    def notes(self, record: S) -> Iterator[str]:
        """Explain the scores of a finished search, and state what it cost."""

    @abstractmethod
    def csv_files(self, record: S) -> dict[str, str]:
        """Return CSV texts of unrounded numbers by the names of their files; the last one has the candidates."""
