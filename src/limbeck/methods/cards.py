"""Method cards: one page a method, for people who choose."""

from __future__ import annotations

from importlib.resources import files


def read_card(name: str) -> str:
    """Return the card of a method, as Markdown.

    Args:
        name: A method in the registry.
    """
    return files("limbeck.methods").joinpath("method_cards", f"{name}.md").read_text(encoding="utf-8")
