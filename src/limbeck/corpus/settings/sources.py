"""`SourceSpec`: a source as a recipe names it, with its role, share and units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import Field, model_validator

from limbeck.core.fields import Grown, Place
from limbeck.corpus.settings.parallel import Language, Parallel, place_of
from limbeck.corpus.settings.text import Units

Role: TypeAlias = Literal["query", "document"]
"""What the texts of a source are to a model of sentence vectors: its prompt follows from it."""


class SourceSpec(Grown):
    """A source of text, with what it is to a model of sentence vectors, how much of it is read, and how it is cut."""

    source: Place | None = None
    """The source, written as it would be without other keys."""
    parallel: Parallel | None = Field(
        None,
        description="In place of source, sentences and their translations, {en: FILE, de: FILE}: the student reads all "
        "languages, and the teacher reads the first in place of each.",
    )
    language: Language | None = None
    """The language of its texts, such as de, by which shares and figures are told."""
    role: Role | None = None
    """What its texts are, query or document: the teacher reads its prompt for that role before them."""
    share: float | None = Field(None, gt=0, lt=1)
    """Its share of the training data; sources without one divide the rest by their sizes."""
    units: Units | None = None
    """Kinds of pieces that it is cut into; default: those of the corpus."""
    added = frozenset({"source", "parallel", "language", "role", "share", "units"})

    @model_validator(mode="after")
    def _is_one_source(self) -> SourceSpec:
        if (self.source is None) == (self.parallel is None):
            raise ValueError("give exactly one of 'source' and 'parallel'")
        if self.parallel is not None:
            for key in ("language", "share", "units"):
                if getattr(self, key) is not None:
                    raise ValueError(f"'{key}' does not apply to parallel text: leave '{key}' out")
        return self

    @property
    def by_language(self) -> list[SourceSpec]:
        """The source itself, or a source for each language of parallel text."""
        if self.parallel is None:
            return [self]
        sources = []
        for language in self.parallel.all_languages:
            place = place_of(self.parallel, language)
            sources.append(SourceSpec(source=place, language=language, role=self.role))
        return sources


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
