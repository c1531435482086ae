"""Recipes that come with the package."""

from __future__ import annotations

from importlib.resources import files


def read_shipped(name: str) -> str:
    """Return the text of a shipped recipe: `example` or `quickstart`."""
    return files("limbeck.recipe").joinpath("shipped_recipes", f"{name}.yaml").read_text(encoding="utf-8")
