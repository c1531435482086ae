"""`SourceSpec`: a source as a recipe names it, with its role, share and units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import Field

from limbeck.core.fields import Grown, Place
from limbeck.corpus.settings.text import Units

Role: TypeAlias = Literal["query", "document"]
"""What the texts of a source are to a model of sentence vectors: its prompt follows from it."""


class SourceSpec(Grown):
    """A source of text, with what it is to a model of sentence vectors, how much of it is read, and how it is cut."""

    source: Place
    """The source, written as it would be without other keys."""
    role: Role | None = None
    """What its texts are, query or document: the teacher reads its prompt for that role before them."""
    share: float | None = Field(None, gt=0, lt=1)
    """Its share of the training data; sources without one divide the rest by their sizes."""
    units: Units | None = None
    """Kinds of pieces that it is cut into; default: those of the corpus."""
    added = frozenset({"role", "share", "units"})


@dataclass(frozen=True)
class SourceUse:
    """The use of one source of a corpus.

    Args:
        role: Role of its texts for a model of sentence vectors, query or document; None without a role.
        prompt: Text that the teacher reads in front of each piece.
        units: Kinds of pieces that its documents are cut into; empty for the unit of the corpus.
    """

    role: Role | None = None
    prompt: str = ""
    units: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The use in a few words, such as `query, title, question`."""
        words = [*self.units] if self.role is None else [self.role, *self.units]
        return ", ".join(words) or "plain"
