"""Texts that set a value, `path.to.key=value`: those of a recipe and of an evaluation."""

from typing import Any

from limbeck.core.yaml import parse_yaml
from limbeck.errors import RecipeError


def parse_assignment(text: str, where: str, form: str) -> tuple[str, Any]:
    """Return the path and the value of a text that sets it; the value is YAML.

    Args:
        text: The text that the user wrote.
        where: The text with its option, for messages.
        form: How it is written, for messages: `path.to.key=value`.

    Raises:
        RecipeError: for a text without `=`, or a value that is not YAML.
    """
    path, equals, value = text.partition("=")
    if not equals:
        raise RecipeError(f"{where} has no value; write {form}.")
    return path, parse_yaml(value, where)
