"""What the searches share on the command line: the run that is searched for, the proxy, the study, the output."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cli.completion import STUDENTS, complete
from limbeck.cli.shared_options import RUN_PANEL, STUDY_PANEL, TRAINING_PANEL

RecipeFile = Annotated[
    Path | None, typer.Argument(help="The recipe (YAML) of the run that is searched for.", show_default=False)
]
Teacher = Annotated[
    str | None, typer.Option(help="Folder, Hub name or package:NAME of the teacher.", rich_help_panel=RUN_PANEL)
]
Student = Annotated[
    str | None,
    typer.Option(
        help='Shape of the student: "4x312" or a preset.', rich_help_panel=RUN_PANEL, autocompletion=complete(STUDENTS)
    ),
]
Corpus = Annotated[
    list[str] | None,
    typer.Option(help="File, folder, glob, hub:NAME or installed-docs; may be repeated.", rich_help_panel=RUN_PANEL),
]
BatchSize = Annotated[
    int | None, typer.Option(help="Blocks a step and device, in every stage.", rich_help_panel=TRAINING_PANEL)
]
LearningRate = Annotated[
    float | None, typer.Option(help="Peak learning rate of every stage.", rich_help_panel=TRAINING_PANEL)
]
Length = Annotated[int | None, typer.Option(help="Longest block in tokens.", rich_help_panel=TRAINING_PANEL)]
Seed = Annotated[int | None, typer.Option(help="Seed of the run and of the search.", rich_help_panel=TRAINING_PANEL)]
Steps = Annotated[
    int | None,
    typer.Option(
        help="Steps of every candidate, in every stage; default: the recipe's. What is found keeps those.",
        rich_help_panel=TRAINING_PANEL,
    ),
]
Share = Annotated[
    float, typer.Option(help="Share of the corpus that candidates are trained on.", rich_help_panel=TRAINING_PANEL)
]
Output = Annotated[Path, typer.Option(metavar="DIR", help="The search's folder; the same command goes on in it.")]
Storage = Annotated[
    str | None,
    typer.Option(
        help="Journal file or database URL that workers share; default: search.journal in the output.",
        rich_help_panel=STUDY_PANEL,
    ),
]
Workers = Annotated[
    int,
    typer.Option(help="Processes that search side by side on this machine; one a GPU.", rich_help_panel=STUDY_PANEL),
]
StudyName = Annotated[str, typer.Option(help="Name of the study in the storage.", rich_help_panel=STUDY_PANEL)]


def base_recipe(recipe: Path | None, overrides: list[str] | None, *, output: Path, **options: Any) -> dict[str, Any]:
    """Return the recipe of the run that is searched for; its own output is the file's, or a folder in the search's.

    Args:
        recipe: The file, if any.
        overrides: `path.to.key=value` each; they win.
        output: The search's folder.
        **options: The options that describe the run; None where not given.

    Raises:
        RecipeError: if neither a file nor enough options are given, or for an override that cannot be read.
    """
    from limbeck.cli.distill import recipe_data
    from limbeck.recipe.load import apply_overrides

    own_place = str(output / "run")
    data = recipe_data(recipe, output=own_place if recipe is None else None, **options)
    data = apply_overrides(data, overrides or [])
    return {**data, "output": data.get("output") or own_place}


def parse_layers(option: str, text: str | None) -> list[int] | None:
    """Read layers such as `1-8,10`; None where nothing is given.

    Raises:
        RecipeError: for anything else.
    """
    from limbeck.errors import RecipeError

    if text is None:
        return None
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        ends = (first, last) if dash else (first, first)
        # Three digits: no teacher is deeper, and a range of billions would take all memory.
        if not all(end.isascii() and end.isdigit() and len(end) <= 3 for end in ends) or int(ends[0]) > int(ends[1]):
            raise RecipeError(f"{option} '{text}' cannot be read; give layers and ranges by commas, such as 1-8,10.")
        found |= dict.fromkeys(range(int(ends[0]), int(ends[1]) + 1))
    return list(found)
