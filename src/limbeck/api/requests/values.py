"""Readers of options: Python gives a list, the command line text with commas, and both become the same value.

Each reader takes the name of the option, which messages name, and the value that the user gave.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from limbeck.core.lists import parse_layers, parse_multiples, parse_names, parse_numbers
from limbeck.errors import RecipeError, suggestion


def as_list(value: Any) -> list[Any]:
    """Return one or several values as a list: an empty one for None, and a list of one for text or a path."""
    if value is None:
        return []
    if isinstance(value, str | Path) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def optional_path(value: str | Path | None) -> Path | None:
    """Return a path with `~` replaced by the user's home; None for None."""
    if value is None:
        return None
    return Path(value).expanduser()


def with_commas(value: Any) -> str:
    """Return one or several values as one text, separated by commas."""
    return ",".join(str(member) for member in as_list(value))


def texts(option: str, value: Any) -> tuple[str, ...]:
    """Read one or several texts."""
    return tuple(str(member) for member in as_list(value))


def several(option: str, value: Any) -> tuple[Any, ...]:
    """Read one or several values of any type."""
    return tuple(as_list(value))


def numbers(option: str, value: Any) -> tuple[int, ...]:
    """Read whole numbers."""
    return tuple(parse_numbers(option, with_commas(value)))


def optional_numbers(option: str, value: Any) -> tuple[int, ...] | None:
    """Read whole numbers; None for None."""
    return None if value is None else numbers(option, value)


def multiples(option: str, value: Any) -> tuple[float, ...]:
    """Read numbers above 0."""
    return tuple(parse_multiples(option, with_commas(value)))


def layers(option: str, value: Any) -> tuple[int, ...] | None:
    """Read numbers of layers, from text such as `1-8,10` or a list; None for None."""
    return None if value is None else tuple(parse_layers(option, with_commas(value)))


def names(option: str, value: Any) -> Any:
    """Read pairs of names, from a mapping or text such as `LABEL_0=entailment,LABEL_1=neutral`."""
    if value is None:
        return {}
    return parse_names(option, value) if isinstance(value, str) else value


PROMPT_ROLES = ("query", "document", "default")
"""Roles of texts that may have a prompt; `default` is that of texts without a role."""


def prompts(option: str, value: Any) -> dict[str, str]:
    """Read the prompts of roles, from a mapping or from texts such as `query=query: `.

    Raises:
        RecipeError: for a text without `=`, and for an unknown role.
    """
    if isinstance(value, Mapping):
        by_role = {str(role): str(prompt) for role, prompt in value.items()}
    else:
        by_role = {}
        pairs = texts(option, value)
        for pair in pairs:
            role, equals, prompt = pair.partition("=")
            if not equals:
                raise RecipeError(
                    f"{option} '{pair[:80]}' does not have the form ROLE=TEXT; write it as in query='query: '."
                )
            by_role[role] = prompt
    for role in by_role:
        if role not in PROMPT_ROLES:
            raise RecipeError(f"{option}: there is no role '{role[:80]}'.{suggestion(role, PROMPT_ROLES)}")
    return by_role


def changes(option: str, value: Any) -> tuple[str, ...]:
    """Read overrides of a recipe.

    Raises:
        RecipeError: for an override without `=`, and so without a value.
    """
    overrides = texts(option, value)
    for override in overrides:
        if "=" not in override:
            raise RecipeError(
                f"{option} '{override[:80]}' is not PATH=VALUE; write a key and its value, such as seed=2."
            )
    return overrides


def optional_commas(option: str, value: Any) -> str | None:
    """Read names from a list or from text with commas, and return text with commas; None for None."""
    return None if value is None else with_commas(value)
