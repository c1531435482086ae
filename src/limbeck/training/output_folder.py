"""The run's folder: never written over by accident, continued only with the same recipe."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from limbeck.errors import OutputError
from limbeck.recipe.load import dump_recipe
from limbeck.recipe.schema import Recipe
from limbeck.training.record import RECORD, write_atomically

RECIPE = "recipe.yaml"


def prepare_output(recipe: Recipe, *, resume: bool, overwrite: bool) -> Path:
    """Make or take up the run's folder, and save the resolved recipe in it.

    Args:
        recipe: The recipe, with its output.
        resume: Continue the run that is there.
        overwrite: Remove the run that is there.

    Returns:
        The folder.

    Raises:
        OutputError: if the folder holds something and neither was asked for, if it is to be removed but is no
            run, or if the run there was made by another recipe.
    """
    if recipe.output is None:
        raise OutputError("The run has no output folder; give output: in the recipe, or --output DIR.")
    folder = Path(recipe.output).expanduser()
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"Output '{folder}' is a file; give a folder.")
    if resume and overwrite:
        raise OutputError("--resume and --overwrite exclude each other: continue the run, or replace it.")
    # A run that failed before it trained anything left nothing to lose.
    occupied = folder.is_dir() and any(path.name not in (RECIPE, RECORD) for path in folder.iterdir())
    if occupied and overwrite and not resume:
        _remove_run(folder)
    elif occupied and not resume:
        raise OutputError(
            f"Output folder '{folder}' is not empty; continue that run with --resume, replace it with --overwrite, "
            "or choose another folder."
        )
    elif occupied and (folder / RECIPE).is_file():
        _check_same_recipe(folder, recipe)
    elif occupied:
        raise OutputError(f"Output folder '{folder}' holds no run to resume; choose an empty or new folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not occupied:
            (folder / RECORD).unlink(missing_ok=True)
        write_atomically(folder / RECIPE, dump_recipe(recipe))
    except OSError as error:
        raise OutputError(f"Output folder '{folder}' cannot be written: {error.strerror or error}.") from None
    return folder


def _remove_run(folder: Path) -> None:
    """Remove a run, and nothing that is not one."""
    if not (folder / RECIPE).is_file() and not (folder / RECORD).is_file():
        raise OutputError(
            f"Output folder '{folder}' was not made by limbeck, so --overwrite does not remove it; "
            "empty it yourself or choose another folder."
        )
    shutil.rmtree(folder)


def _check_same_recipe(folder: Path, recipe: Recipe) -> None:
    saved = yaml.safe_load((folder / RECIPE).read_text(encoding="utf-8"))
    asked = yaml.safe_load(dump_recipe(recipe))
    for data in (saved, asked):
        for key in ("output", "evaluation", "name"):  # These change nothing that was computed.
            data.pop(key, None)
    difference = _first_difference(saved, asked)
    if difference is not None:
        place, old, new = difference
        raise OutputError(
            f"The run in '{folder}' has {place} = {old!r}, this recipe {new!r}; resume with the same recipe "
            f"('{folder / RECIPE}'), or start anew elsewhere or with --overwrite."
        )


def _first_difference(saved: Any, asked: Any, place: str = "recipe") -> tuple[str, Any, Any] | None:
    """Find the first place where two documents differ."""
    if isinstance(saved, dict) and isinstance(asked, dict):
        for key in [*saved, *(key for key in asked if key not in saved)]:
            below = _first_difference(saved.get(key), asked.get(key), f"{place}.{key}")
            if below is not None:
                return below
        return None
    if isinstance(saved, list) and isinstance(asked, list) and len(saved) == len(asked):
        for index, pair in enumerate(zip(saved, asked, strict=True)):
            below = _first_difference(*pair, f"{place}.{index}")
            if below is not None:
                return below
        return None
    return None if saved == asked else (place.removeprefix("recipe."), saved, asked)
