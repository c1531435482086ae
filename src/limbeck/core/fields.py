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
            raise ValueError(
                f"'{text}' begins with the home folder (~) of a user who does not exist on this machine: give the "
                "full path"
            ) from None
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
    """A part of a document to which keys were added after a release.

    A document has an added key only where it is given. So the identities of older runs, comparisons and searches, which
    are hashes of documents, stay as they were.
    """

    added: ClassVar[frozenset[str]] = frozenset()
    """Keys that were added after a release, which are left out of documents where they are None."""

    @model_serializer(mode="wrap")
    def _leave_out_new_keys(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without derived keys, and without added keys that are not given."""
        derived = self._derived_keys()
        document = {}
        for key, value in dump(self).items():
            is_not_given = key in self.added and value is None
            if key not in derived and not is_not_given:
                document[key] = value
        return document

    def _derived_keys(self) -> frozenset[str]:
        """Keys whose values follow from others, so that documents do not have them."""
        return frozenset()
