"""The columns that labelled rows are made of."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from limbeck.core.strict import Strict


def _several(value: Any) -> Any:
    """Return a name alone as several names; anything else as it is."""
    if isinstance(value, str):
        return (value,)
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_several)]
"""Several names, or one alone."""


class Columns(Strict):
    """The columns that a row is made of; those of question answering are SQuAD's by default.

    Attributes:
        text: The text; of a list of texts the parts are joined by spaces.
        pair: The second text.
        label: The class or the value; of several classes, a list of them, or text that has them between `|`, `;`
            or `,`.
        label_columns: In place of `label`, a column of 0 and 1 for each class.
        label_lists: Whether numbers in a list are those of the classes, or 1 or 0 for each class; None finds it out by
            all rows.
        id: The id of the row; where a table has no such column, rows are numbered from 0.
        context: The text that a question is asked of.
        question: The question.
        answers: Texts and starts of its answers.
        query: The query of a ranking or a retrieval.
        documents: Columns of its documents, each a text or a list of texts; of several the first holds the relevant
            ones.
        tokens: The words of a sentence; of a table of a word a line the first field.
        tags: Their classes; of such a table the last field.
    """

    text: str = ""
    pair: str | None = None
    label: str = "label"
    label_columns: tuple[str, ...] = ()
    label_lists: Literal["numbers", "flags"] | None = None
    id: str | None = None
    context: str = "context"
    question: str = "question"
    answers: str = "answers"
    query: str = "query"
    documents: Names = Field(("documents",), min_length=1)
    tokens: str = "tokens"
    tags: str = "tags"
