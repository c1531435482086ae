"""The cards of methods: a page each on its purpose, its use and its source."""

from importlib.resources import files

RECIPE_CARDS = {
    "teacher_assistant": "A model between teacher and student in size, in a separate stage; a recipe, with any method.",
    "truncated_teacher": "The teacher's first layers as they are, without training; a recipe without stages.",
}
"""Ways to distil that are recipes rather than methods, and have a card too: name to one sentence."""


def read_card(name: str) -> str:
    """Return a card, as Markdown; empty for a method from outside the package, which has none.

    Args:
        name: A method in the registry, or one of `RECIPE_CARDS`.
    """
    card = files("limbeck.methods").joinpath("method_cards", f"{name}.md")
    return card.read_text(encoding="utf-8") if card.is_file() else ""
