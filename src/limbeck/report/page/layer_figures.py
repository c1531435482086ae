"""The layer mapping of a method as a diagram, with its terms."""

from __future__ import annotations

from limbeck.report.page.content import Figure, Table, slug
from limbeck.report.page.draw_layers import SCORES, LinkKind, draw_layers
from limbeck.report.page.layer_links import LayerLinks, describe_streams

_SAID_PAIRS = 40


def layers_figure(title: str, links: LayerLinks, caption: str = "") -> Figure:
    """Draw which layers of the student learn from which layers of the teacher, and list the terms.

    Args:
        title: A line.
        links: What the method joins.
        caption: What a reader should know to read it.
    """
    rows = tuple(
        (
            term.name,
            term.objective,
            f"{term.weight:g}",
            describe_streams(term.student),
            describe_streams(term.teacher) or "labels",
        )
        for term in links.terms
    )
    headings = ("Term", "Objective", "Weight", "Student", "Teacher")
    words = f"Student of {links.student} layers, teacher of {links.teacher}. " + " ".join(
        _describe(kind) for kind in links.kinds
    )
    drawing = draw_layers(links.student, links.teacher, links.kinds)
    return Figure(slug(title), title, caption, words, drawing, Table("Terms", headings, rows, words=(1, 3, 4)))


def _describe(kind: LinkKind) -> str:
    if not kind.pairs:
        return f"{kind.label}: reads no teacher."
    said = ", ".join(f"{_name(s)} from {_name(t)}" for s, t in kind.pairs[:_SAID_PAIRS])
    more = f" and {len(kind.pairs) - _SAID_PAIRS} more" if len(kind.pairs) > _SAID_PAIRS else ""
    return f"{kind.label}: {said}{more}."


def _name(layer: int) -> str:
    return "scores" if layer == SCORES else "embedding" if layer == 0 else str(layer)
