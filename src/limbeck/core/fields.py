"""Types of the values that many keys of documents share, and the base of parts that grew after a release."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer

from limbeck.core.strict import Strict

NONE = "none"
"""The value of a key that turns off what has a default."""
MOST = 10**12
"""The largest count of anything. A larger number is likelier a slip of the keyboard than a run."""


def _check_not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty: give a name, or leave the key out")
    return text


def _check_known_home(text: str) -> str:
    if text.startswith("~"):
        try:
            Path(text).expanduser()
        except RuntimeError:
            raise ValueError(f"'{text}' begins with the home folder of a user who is not known here") from None
    return text


def _refuse_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a number")
    return value


Name: TypeAlias = Annotated[str, AfterValidator(_check_not_blank)]
"""Text that names something: a model, a stage, a column."""

Place: TypeAlias = Annotated[Name, AfterValidator(_check_known_home)]
"""Text that may be a path."""

Number: TypeAlias = Annotated[float, BeforeValidator(_refuse_truth_value)]
"""A finite number, for members of lists; a field refuses truth values by itself."""

Whole: TypeAlias = Annotated[int, BeforeValidator(_refuse_truth_value)]
"""A whole number, for members of lists."""

Count: TypeAlias = Annotated[Whole, Field(ge=1)]
"""A whole number from 1 on."""

Share: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
"""A part of a whole, never all of it."""

Length: TypeAlias = Annotated[int, Field(ge=4, le=1_000_000)]
"""Length of a text in tokens."""

Width: TypeAlias = Annotated[int, Field(ge=1, le=65536)]
"""Width of a stream, or a number of heads."""


class Grown(Strict):
    """A part of a document with keys that came after a release: documents have them only where they are given.

    So identities of older runs, comparisons and searches stay as they were.
    """

    added: ClassVar[frozenset[str]] = frozenset()
    """Keys that are left out of documents where they are None."""

    @model_serializer(mode="wrap")
    def _leave_out_new_keys(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document = dump(self)
        derived = self._derived_keys()
        left_out = {key for key in document if key in derived or (document[key] is None and key in self.added)}
        return {key: value for key, value in document.items() if key not in left_out}

    def _derived_keys(self) -> frozenset[str]:
        """Keys whose values follow from others, so that documents do not have them."""
        return frozenset()
