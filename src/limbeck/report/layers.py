"""The layers that a stage joins: which layers of the student learn from which layers of the teacher, by which terms."""

import re
from collections.abc import Iterable

from limbeck.core.blocks import AnyCell, Table
from limbeck.core.records import Stage

_LAYERS_IN_TERM = re.compile(r"(?P<term>.+)_(?P<student>\d+)_(?P<teacher>\d+)")
"""The name of a term of an older record, with the layers that it joins: `hidden_2_6`."""


def layer_rows(stage: Stage) -> list[tuple[str, str, str]]:
    """Return the layers that a stage joins, as rows of student layers, teacher layers and terms of the loss.

    Layer 0 is the embedding output. Several layers stand in one row if one term reads them together.
    """
    # The terms by the layers of student and teacher that they read, as text.
    terms_by_layers: dict[tuple[str, str], list[str]] = {}
    for link in stage.layers:
        student_layers = ", ".join(map(str, link.student))
        teacher_layers = ", ".join(map(str, link.teacher))
        terms = terms_by_layers.setdefault((student_layers, teacher_layers), [])
        # Several links may join the same layers. Each of their terms is named once.
        terms += [term for term in link.terms if term not in terms]

    # Older records have no links, but the layers in the names of the terms.
    if not terms_by_layers:
        for name in stage.final_terms:
            match = _LAYERS_IN_TERM.fullmatch(name)
            if match is not None:
                terms = terms_by_layers.setdefault((match["student"], match["teacher"]), [])
                terms.append(match["term"])

    rows = []
    for (student_layers, teacher_layers), terms in terms_by_layers.items():
        # A term that reads layers of one model alone joins none.
        if student_layers and teacher_layers:
            rows.append((student_layers, teacher_layers, ", ".join(terms)))
    return rows


def layers_table(caption: str, first_heading: str, named_stages: Iterable[tuple[str, Stage]]) -> Table | None:
    """Lay out the layer mappings of stages; None where no stage has one.

    Args:
        caption: Caption of the table.
        first_heading: Heading of the column with the names.
        named_stages: The records of stages, each after its name.
    """
    rows: list[tuple[AnyCell, ...]] = []
    for name, stage in named_stages:
        rows += [(name, *row) for row in layer_rows(stage)]
    if not rows:
        return None
    headings = (first_heading, "Student layers", "Teacher layers", "Terms")
    table = Table(f"{caption} (0 is the embedding output)", headings, tuple(rows))
    return table.with_words("Student layers", "Teacher layers", "Terms")
