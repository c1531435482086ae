"""The share of text that limbeck holds out where it chooses a recipe: enough documents to judge a student by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from limbeck.core.paths import RECIPE
from limbeck.corpus.settings.corpus import DEFAULT_HELD_OUT
from limbeck.recipe.load import read_recipe

CHOSEN_HELD_OUT = 0.05
"""Share of the documents of a chosen recipe. A written one holds out `DEFAULT_HELD_OUT`, of which few texts are too few
to judge a student."""


def with_held_out(
    recipe: Mapping[str, Any],
    *,
    named: Mapping[str, Any] = MappingProxyType({}),
    saved_recipe: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Add the share of held-out documents to a chosen recipe of text, with the reason.

    Labelled rows stay as they are: they have another default, and may have development rows instead.

    Args:
        recipe: The recipe.
        named: Keys of the corpus that the user gives later. A task among them makes labelled rows of the text.
        saved_recipe: The recipe of the run that is continued, whose share is kept.

    Returns:
        The recipe with `corpus.held_out`; or as it is for labelled rows, and where the share is given.
    """
    corpus = recipe.get("corpus")
    if not isinstance(corpus, Mapping) or "held_out" in corpus:
        return dict(recipe)
    if "task" in corpus or "task" in named:
        return dict(recipe)

    path = "corpus.held_out"
    share: Any = CHOSEN_HELD_OUT
    reasons = dict(recipe.get("reasons") or {})
    if saved_recipe is None:
        reasons[path] = (
            f"{CHOSEN_HELD_OUT:.0%} of the documents, to measure the student on them; a recipe that you write holds "
            f"out {DEFAULT_HELD_OUT:.0%} by default"
        )
    else:
        share = (saved_recipe.get("corpus") or {}).get("held_out", CHOSEN_HELD_OUT)
        saved_reasons = saved_recipe.get("reasons") or {}
        if path in saved_reasons:
            reasons[path] = saved_reasons[path]
    return {**recipe, "corpus": {**corpus, "held_out": share}, "reasons": reasons}


def recipe_of_run(output: str | Path | None) -> dict[str, Any] | None:
    """The recipe that is saved in the folder of a run; None without one."""
    if output is None:
        return None
    path = Path(output).expanduser() / RECIPE
    if not path.is_file():
        return None
    return read_recipe(path)
