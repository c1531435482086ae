"""The base of the three views of searches: the words, tables, figures and files of one type of search record."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

from limbeck.core.blocks import Block, Figure, Notes, Paragraph, Table
from limbeck.core.studies import Search

S = TypeVar("S", bound=Search)
ONE_TRAINING = "Each was trained once, with one seed: differences may be due to chance."


class SearchView(ABC, Generic[S]):
    """The words, tables, figures and files of a search, finished or as far as it has come.

    Attributes:
        TITLE: Of its file.
        SECTION: The title of its results in a report.
    """

    TITLE: ClassVar[str]
    SECTION: ClassVar[str]

    def setting(self, record: S) -> str:
        """Return the models, the text and the space of the search in a line."""
        student = f" student {record.student.shape}," if record.student.shape else ""
        methods = " and ".join(record.methods)
        scope = self.scope(record)
        within = f"; {scope}" if scope else ""
        return (
            f"Teacher {record.teacher.name} ({record.teacher.shape}),{student} {methods} on "
            f"{record.share:.0%} of the corpus{within}."
        )

    def scope(self, record: S) -> str:
        """Return the choices of the search, for `setting`."""
        return ""

    @abstractmethod
    def result(self, record: S) -> str:
        """Return the result in a few words; empty for none."""

    @abstractmethod
    def result_line(self, record: S) -> str:
        """Return the result in whole sentences, with the next best; empty for none."""

    @abstractmethod
    def tables(self, record: S) -> list[Table]:
        """Return the tables of its file."""

    def console_blocks(self, record: S) -> list[Block]:
        """Return result and tables for a console."""
        blocks: list[Block] = []
        line = self.result_line(record)
        if line:
            blocks.append(Paragraph(line))
        return [*blocks, *self.tables(record)]

    @abstractmethod
    def page_blocks(self, record: S, so_far: str) -> Iterator[Block]:
        """Draw and list the results; `so_far` stands in the captions of a search that is not finished."""

    @abstractmethod
    def notes(self, record: S) -> Iterator[str]:
        """Describe the figures, the cost, and the candidates without a result."""

    def page_notes(self, record: S, so_far: str) -> Notes:
        """Return the notes of a finished search; none of another, whose cost is not known yet."""
        if so_far:
            return Notes(())
        return Notes(tuple(self.notes(record)))

    @abstractmethod
    def files(self, record: S) -> dict[str, str]:
        """Return tables of unrounded numbers by the names of their files."""

    @abstractmethod
    def pictures(self, record: S) -> dict[str, Figure]:
        """Return its figures by the names of their files."""


def next_best(value: str | None) -> str:
    """Return the sentences that follow a result: the next best value, and the caution of a single training."""
    if value is None:
        return ONE_TRAINING
    return f"The next best has {value}. {ONE_TRAINING}"
