"""Texts of held-out rows, on which the decisions of an export are compared with those of its source."""

from collections.abc import Sequence

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.kinds.kind import Kind
from limbeck.models.sample_texts import Text


def texts_of_rows(rows: Sequence[LabelledRow], kind: Kind, most: int) -> list[Text]:
    """Return the distinct texts of labelled rows, in their order.

    Args:
        rows: The rows.
        kind: The kind of their task.
        most: Largest number of texts.
    """
    texts: dict[Text, None] = {}
    for row in rows:
        if len(texts) >= most:
            break
        texts[_text_of(row, kind)] = None
    return list(texts)


def _text_of(row: LabelledRow, kind: Kind) -> Text:
    """Return the text of a row, or its two texts, in the order in which a model reads them."""
    text = kind.plain_text(row.text)
    if row.pair is None:
        return text
    # A question is read before the text that has its answer.
    if kind.facts.has_answers:
        return row.pair, text
    return text, row.pair
