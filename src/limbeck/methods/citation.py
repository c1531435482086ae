"""Citations of the papers that methods come from, with their BibTeX entries."""

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Citation:
    """The paper that a method comes from, for the record and the model card.

    Args:
        title: Title of the paper.
        authors: Full names, separated by commas.
        year: Year of publication.
        url: Address of a page where it can be read.
        place: Section, equation or table that the method follows.
        bibtex: The entry for a bibliography.
    """

    title: str
    authors: str
    year: int
    url: str
    place: str
    bibtex: str


def cite(citation: Citation, place: str) -> Citation:
    """Point at a place in a paper.

    Args:
        citation: The paper.
        place: Section, equation or table.
    """
    return replace(citation, place=place)


def paper(
    key: str,
    title: str,
    authors: str,
    year: int,
    url: str,
    venue: str,
    place: str = "",
    kind: Literal["inproceedings", "article"] = "inproceedings",
) -> Citation:
    """Make a citation and its BibTeX entry from the same facts.

    Args:
        key: Key of the BibTeX entry.
        title: Title of the paper.
        authors: Full names, separated by commas.
        year: Year of publication.
        url: Address of a page where it can be read.
        venue: Journal or proceedings.
        place: Section, equation or table.
        kind: Type of the BibTeX entry.
    """
    # The key under which BibTeX wants the venue.
    venue_key = "journal" if kind == "article" else "booktitle"
    fields = {"title": title, "author": " and ".join(authors.split(", ")), venue_key: venue, "year": year}
    lines = ",\n".join(f"  {name}={{{value}}}" for name, value in fields.items())
    return Citation(
        title=title,
        authors=authors,
        year=year,
        url=url,
        place=place,
        bibtex=f"@{kind}{{{key},\n{lines}\n}}",
    )


COMPARATIVE_STUDY = paper(
    key="udagawa2023comparative",
    title="A Comparative Analysis of Task-Agnostic Distillation Methods for Compressing Transformer Language Models",
    authors="Takuma Udagawa, Aashka Trivedi, Michele Merler, Bishwaranjan Bhattacharjee",
    year=2023,
    url="https://arxiv.org/abs/2310.08797",
    venue="Proceedings of the 2023 Conference on Empirical Methods in Natural Language Processing: Industry Track",
)
