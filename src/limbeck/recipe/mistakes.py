"""Mistakes of a recipe: gathered to be told together, each with its place."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pydantic import ValidationError

from limbeck.core.mistakes import explain
from limbeck.errors import LimbeckError, RecipeError, together


class Mistakes:
    """Errors of several checks that do not depend on each other.

    Example:
        >>> mistakes = Mistakes()
        >>> with mistakes.gathered():
        ...     check_one_thing()
        >>> with mistakes.gathered("stages.0"):
        ...     check_another()
        >>> mistakes.raise_all()  # Raises one error for both.
    """

    def __init__(self) -> None:
        self._errors: list[LimbeckError] = []

    @contextmanager
    def gathered(self, place: str = "") -> Iterator[None]:
        """Keep the error of a check, if it raises one, and go on behind the block.

        Args:
            place: Where in the recipe the check looks; it is put before each line of the error.
        """
        try:
            yield
        except LimbeckError as error:
            if not place:
                self._errors.append(error)
                return
            # The place stands before each mistake of an error that has several.
            for line in error.mistakes or (str(error),):
                self._errors.append(type(error)(f"{place}: {line}"))

    def raise_all(self) -> None:
        """Raise the errors that were kept as one; nothing happens where there are none.

        Raises:
            LimbeckError: if there are any; one with the `mistakes`, where they are several.
        """
        if self._errors:
            raise together(self._errors)


def error_of_part(part: str, error: ValidationError) -> RecipeError:
    """Make the error of a part of a recipe that was validated alone.

    Args:
        part: The key of the part, such as `student`.
        error: What is wrong with it.
    """
    # The explanation begins with the key of the mistake, or with "recipe" for a mistake of the part as a whole.
    explanation = explain(error)
    if explanation.startswith("recipe:"):
        return RecipeError(f"{part}{explanation.removeprefix('recipe')}")
    return RecipeError(f"{part}.{explanation}")


@contextmanager
def at_place(place: str) -> Iterator[None]:
    """Put a place in the recipe before the error of what is done in it."""
    try:
        yield
    except LimbeckError as error:
        raise type(error)(f"{place}: {error}") from None


def text_without_columns(column: str, places: Sequence[str]) -> RecipeError:
    """Return the error for the option `text_column` where a corpus has no columns.

    Args:
        column: The column.
        places: The sources of the corpus.
    """
    return RecipeError(
        f"--text-column {column} names a column of tables, but this corpus ({', '.join(places)}) has texts without "
        "columns; leave --text-column out."
    )
