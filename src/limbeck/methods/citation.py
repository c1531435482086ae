"""Citations of the papers that methods come from, with their BibTeX entries."""

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Citation:
    """Where a method comes from, for the record and the model card."""

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
        key: Of the BibTeX entry.
        title: Of the paper.
        authors: Full names, separated by commas.
        year: Of publication.
        url: Where it can be read.
        venue: Journal or proceedings.
        place: Section, equation or table.
        kind: Of the BibTeX entry.
    """
    published = "journal" if kind == "article" else "booktitle"
    names = " and ".join(authors.split(", "))
    fields = {"title": title, "author": names, published: venue, "year": year}
    inside = ",\n".join(f"  {name}={{{value}}}" for name, value in fields.items())
    return Citation(title, authors, year, url, place, f"@{kind}{{{key},\n{inside}\n}}")


COMPARATIVE_STUDY = paper(
    "udagawa2023comparative",
    "A Comparative Analysis of Task-Agnostic Distillation Methods for Compressing Transformer Language Models",
    "Takuma Udagawa, Aashka Trivedi, Michele Merler, Bishwaranjan Bhattacharjee",
    2023,
    "https://arxiv.org/abs/2310.08797",
    "Proceedings of the 2023 Conference on Empirical Methods in Natural Language Processing: Industry Track",
)
