"""The start of a student with fewer pieces in its vocabulary: its source with the rows of these pieces alone."""

from __future__ import annotations

from dataclasses import replace

from limbeck.errors import ModelError
from limbeck.models.families import Shape
from limbeck.models.start_step import Start, StartSettings, StartStep
from limbeck.models.vocabulary_rows import cut_rows

PIECES = "pieces"
"""Name of the step; its option `number` is the number of pieces, and `ids` their ids in the source's vocabulary.

Both are None before the text is read that decides them; the number may be known before.
"""


class CutSource(StartStep):
    """Puts a model with the rows that stay in the source's place, from which later steps start."""

    name = PIECES
    place = "vocabulary"

    def shape(self, source: Shape, settings: StartSettings) -> Shape:
        """Return the source's shape with the smaller vocabulary; with the whole one while its size is not known."""
        number = settings.steps[PIECES]["number"]
        if number is None:
            return source
        return replace(source, vocabulary=number)

    def apply(self, start: Start) -> None:
        """Cut the source.

        Raises:
            ModelError: for a start whose pieces were not chosen on text.
        """
        ids = start.settings.steps[PIECES].get("ids")
        if ids is None:
            raise ModelError(
                "A student with fewer pieces than its source needs text by which the pieces are chosen, but there "
                "is none; first cut the source with `limbeck trim`, and start from the result."
            )
        start.source = cut_rows(start.source, ids)
