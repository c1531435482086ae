"""Rules that give each source its share of the training data: by weights, by sizes, or a stated share for some."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field, model_validator

from limbeck.core.fields import Grown, Number, Place
from limbeck.errors import CorpusError


class Mixing(Protocol):
    """A rule that gives each source its share of the rows."""

    @property
    def reads_sizes(self) -> bool:
        """Whether shares depend on the sizes of sources."""

    def share_names(self, titles: Sequence[str]) -> Sequence[str]:
        """The name of the share that each source is read by; sources with the same name divide one share.

        Args:
            titles: Names of the sources.
        """

    def shares(self, sizes: Sequence[int | None]) -> list[float]:
        """The share of each source; they add up to 1.

        Args:
            sizes: Size of each source in any unit, `None` where it is not known.

        Raises:
            CorpusError: if the rule cannot be applied to these sources.
        """

    def describe(self, *, streamed: bool) -> str:
        """The rule in words, for records."""


class MixSpec(Grown):
    """The shares of several sources, such as languages: by weights, or by their sizes to a power."""

    # With an exponent α the share of a source of size n_i is p_i = n_i^α / Σ_j n_j^α: 1 keeps the proportions, 0 makes
    # all equal, and between them small sources, such as rare languages, are read more often than their size says.
    # XLM (arXiv 1901.07291, section 3.1) has the formula, with n_i in sentences; XLM-R (arXiv 1911.02116, section 3)
    # takes α = 0.3 and names no unit. Here n_i are the blocks of a built corpus, and a stream's bytes of text.

    weights: list[Annotated[Number, Field(gt=0, allow_inf_nan=False)]] | None = None
    """A weight for each source, in the order of the sources; they need not add up to 1."""
    exponent: float | None = Field(None, ge=0, le=1)
    """Shares proportional to size^exponent: 1 keeps the proportions, 0 makes all equal; XLM-R has 0.3."""
    by: Place | None = None
    """A pattern of file names that gives the sources, such as data/{language}.txt.xz; exponent only."""
    added = frozenset({"by"})

    @model_validator(mode="after")
    def _weights_or_exponent(self) -> MixSpec:
        if self.by is not None and self.exponent is None:
            raise ValueError("'by' needs an 'exponent', such as 0.3, because 'weights' apply only to listed sources")
        if (self.weights is None) == (self.exponent is None):
            raise ValueError("'mix' needs exactly one of 'weights' and 'exponent'")
        return self

    @property
    def reads_sizes(self) -> bool:
        """Whether shares depend on the sizes of sources."""
        return self.weights is None

    def share_names(self, titles: Sequence[str]) -> Sequence[str]:
        """The names of the sources, each of which has a share of its own."""
        return titles

    def shares(self, sizes: Sequence[int | None]) -> list[float]:
        """The share of each source; they add up to 1.

        Args:
            sizes: Size of each source in any unit, `None` where it is not known.

        Raises:
            CorpusError: if an exponent meets an unknown size, or all sources are empty.
        """
        if self.weights is not None:
            return _normalise(self.weights)
        return shares_by_size(sizes, self.exponent or 0.0)

    def describe(self, *, streamed: bool) -> str:
        """The rule in words, for records."""
        if self.weights is not None:
            return "weights"
        return f"size^{self.exponent:g}, in {_unit_of_sizes(streamed=streamed)}"


@dataclass(frozen=True)
class SourceShares:
    """Shares that some sources state; the others divide the rest of 1 by their sizes.

    Args:
        stated: The share of each source; None where a source states none.
    """

    stated: tuple[float | None, ...]

    @property
    def reads_sizes(self) -> bool:
        """Whether several sources have no stated share. A single one takes the whole rest, whatever its size."""
        return self.stated.count(None) > 1

    def share_names(self, titles: Sequence[str]) -> Sequence[str]:
        """The names of the sources, each of which has a share of its own."""
        return titles

    def shares(self, sizes: Sequence[int | None]) -> list[float]:
        """The share of each source; they add up to 1.

        Args:
            sizes: Size of each source in any unit, `None` where it is not known.

        Raises:
            CorpusError: if several sources divide the rest, and the size of one of these is not known.
        """
        rest = 1 - math.fsum(share for share in self.stated if share is not None)
        without_share = [place for place, share in enumerate(self.stated) if share is None]

        shares = [share or 0.0 for share in self.stated]
        if len(without_share) == 1:
            # A single source without a share takes the rest, whatever its size.
            shares[without_share[0]] = rest
        elif without_share:
            parts_of_rest = shares_by_size([sizes[place] for place in without_share])
            for place, part in zip(without_share, parts_of_rest, strict=True):
                shares[place] = rest * part
        return _normalise(shares)

    def describe(self, *, streamed: bool) -> str:
        """The rule in words, for records."""
        if not self.reads_sizes:
            return "weights"
        return f"shares, the rest by size, in {_unit_of_sizes(streamed=streamed)}"


@dataclass(frozen=True)
class LanguageShares:
    """Shares of languages by their sizes to a power; the sources of a language divide its share by their sizes.

    Args:
        exponent: The exponent α, see `shares_by_size`.
        languages: The language of each source, several of which may have the same.
    """

    exponent: float
    languages: tuple[str, ...]

    @property
    def reads_sizes(self) -> bool:
        """Whether shares depend on the sizes of sources: they do."""
        return True

    def share_names(self, titles: Sequence[str]) -> Sequence[str]:
        """The language of each source, whose sources divide its share."""
        return self.languages

    def shares(self, sizes: Sequence[int | None]) -> list[float]:
        """The share of each source; they add up to 1.

        Args:
            sizes: Size of each source in any unit, `None` where it is not known.

        Raises:
            CorpusError: if a size is not known, or all sources are empty.
        """
        places_of_language: dict[str, list[int]] = {}
        for place, language in enumerate(self.languages):
            places_of_language.setdefault(language, []).append(place)

        # For each language, in the order of `places_of_language`: the sizes of its sources, their sum, and its share.
        sizes_by_language = [[sizes[place] for place in places] for places in places_of_language.values()]
        sizes_of_languages = [_sum_of_known(language_sizes) for language_sizes in sizes_by_language]
        shares_of_languages = shares_by_size(sizes_of_languages, self.exponent)

        shares = [0.0] * len(sizes)
        for number, places in enumerate(places_of_language.values()):
            share_of_language = shares_of_languages[number]
            # A language without any text has no parts, and its sources keep the share 0.
            if share_of_language > 0:
                parts = shares_by_size(sizes_by_language[number])
                for place, part in zip(places, parts, strict=True):
                    shares[place] = share_of_language * part
        return shares

    def describe(self, *, streamed: bool) -> str:
        """The rule in words, for records."""
        return f"size^{self.exponent:g} of each language, in {_unit_of_sizes(streamed=streamed)}"


def shares_by_size(sizes: Sequence[int | None], exponent: float = 1.0) -> list[float]:
    """Return shares by size, p_i = n_i^α / Σ_j n_j^α; an empty source has the share 0, also with α = 0.

    Args:
        sizes: Size of each source, n_i; `None` where it is not known.
        exponent: The exponent α.

    Raises:
        CorpusError: if a size is not known, or all sources are empty.
    """
    import numpy as np  # Recipes are checked without it.

    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        raise CorpusError(
            "The size of a source is not known before it is read (a Hub data set, or files of a server that "
            "states no size), so mix.exponent cannot be applied: give mix.weights in its place."
        )
    parts = np.asarray(known, dtype=np.float64) ** exponent
    parts[np.asarray(known) == 0] = 0  # 0^0 is 1, but there is nothing to read.
    return _normalise(parts)


def _sum_of_known(sizes: Sequence[int | None]) -> int | None:
    """Return the sum of sizes; None where one of them is not known."""
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def _normalise(parts: Iterable[float]) -> list[float]:
    """Return the shares that are in proportion to parts.

    Raises:
        CorpusError: if all parts are 0.
    """
    import numpy as np  # Recipes are checked without it.

    array = np.asarray([*parts], dtype=np.float64)
    total = array.sum()
    if total == 0:
        raise CorpusError("All sources of the mix are empty.")
    return [float(part) for part in array / total]


def _unit_of_sizes(*, streamed: bool) -> str:
    return "bytes of text, estimated from the beginning of up to 16 files per source" if streamed else "blocks"
