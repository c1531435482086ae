"""Types of values that many keys of a recipe share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty: give a name, or leave the key out")
    return text


def _known_home(text: str) -> str:
    if text.startswith("~"):
        try:
            Path(text).expanduser()
        except RuntimeError:
            raise ValueError(f"'{text}' begins with the home folder of a user that is not known here") from None
    return text


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is no number")
    return value


Name: TypeAlias = Annotated[str, AfterValidator(_not_blank)]
"""Text that names something: a model, a stage, a column."""

Place: TypeAlias = Annotated[Name, AfterValidator(_known_home)]
"""Text that may be a path."""

Number: TypeAlias = Annotated[float, BeforeValidator(_no_truth_value)]
"""A finite number, for members of lists; a field refuses truth values by itself."""

Whole: TypeAlias = Annotated[int, BeforeValidator(_no_truth_value)]
"""A whole number, for members of lists."""

Count: TypeAlias = Annotated[Whole, Field(ge=1)]
"""A whole number from 1 on."""

MOST = 10**12
"""Of anything that is counted; with more, a slip of the keyboard is likelier than a run."""
