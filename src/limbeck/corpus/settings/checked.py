"""`Checked`: the base of settings that Python code makes by itself; their mistakes are a `CorpusError` of one line."""

from typing import Any

from pydantic import ValidationError

from limbeck.core.fields import Grown
from limbeck.core.mistakes import explain
from limbeck.errors import CorpusError


class Checked(Grown):
    """A part of a document that may also stand alone.

    Raises:
        CorpusError: for keys that cannot be meant.
    """

    def __init__(self, **keys: Any) -> None:
        try:
            super().__init__(**keys)
        except ValidationError as error:
            raise CorpusError(explain(error).removeprefix("recipe: ")) from None
