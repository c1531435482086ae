"""The layer mapping of a method as a diagram, with its terms."""

from __future__ import annotations

from limbeck.report.content import Figure, Table, slug
from limbeck.report.draw_layers import SCORES, LinkKind, draw_layers
from limbeck.report.layer_links import LayerLinks

_SAID_PAIRS = 40


def layers_figure(title: str, links: LayerLinks, caption: str = "") -> Figure:
    """Draw which layers of the student learn from which layers of the teacher, and list the terms.

    Args:
        title: A line.
        links: What the method joins.
        caption: What a reader should know to read it.
    """
    depths = f"Student of {links.student} layers, teacher of {links.teacher}"
    if not links.whole:
        depths += " or more"
        unknown = "How deep the models are is not recorded: layers above the highest that takes part are not drawn."
        caption = f"{caption} {unknown}".strip()
    words = f"{depths}. " + " ".join(_describe(kind) for kind in links.kinds)
    columns = tuple(index for index, heading in enumerate(links.headings) if index and heading != "Weight")
    drawing = draw_layers(links.student, links.teacher, links.kinds)
    return Figure(slug(title), title, caption, words, drawing, Table("Terms", links.headings, links.terms, columns))


def _describe(kind: LinkKind) -> str:
    if not kind.pairs:
        return f"{kind.label}: reads no teacher."
    said = ", ".join(f"{_name(s)} from {_name(t)}" for s, t in kind.pairs[:_SAID_PAIRS])
    more = f" and {len(kind.pairs) - _SAID_PAIRS} more" if len(kind.pairs) > _SAID_PAIRS else ""
    return f"{kind.label}: {said}{more}."


def _name(layer: int) -> str:
    return "scores" if layer == SCORES else "embedding" if layer == 0 else str(layer)
