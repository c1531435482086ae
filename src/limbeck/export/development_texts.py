"""Texts of development rows, on which the decisions of an export are compared with those of its source."""

from limbeck.core.kinds import kind_of
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import TaskData
from limbeck.models.sample_texts import Text


def texts_of_rows(data: TaskData, most: int) -> list[Text]:
    """Return the distinct texts of the scored rows of a task, in their order.

    Args:
        data: The rows.
        most: Largest number of texts.
    """
    texts: dict[Text, None] = {}
    for split in data.task.scored:
        for row in data.splits[split]:
            texts[_text_of(row, data.task.kind)] = None
            if len(texts) >= most:
                return list(texts)
    return list(texts)


def _text_of(row: LabelledRow, kind: str) -> Text:
    """Return the text of a row, or its two texts, in the order in which a model reads them."""
    text = KINDS[kind].plain_text(row.text)
    if row.pair is None:
        return text
    # A question is read before the text that has its answer.
    if kind_of(kind).has_answers:
        return row.pair, text
    return text, row.pair
