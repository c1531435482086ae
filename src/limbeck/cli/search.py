"""`limbeck search`: the commands that find a layer mapping, a student's shape or a teacher layer on a proxy."""

from __future__ import annotations

import typer

from limbeck.cli import search_architecture, search_mapping, search_teacher_layer
from limbeck.cli.options import examples

_HELP = "Find a layer mapping, a student's shape or a teacher layer on a cheap proxy of the run."


def register(app: typer.Typer, panel: str) -> None:
    """Add the group of commands."""
    epilog = examples("limbeck search mapping recipe.yaml --steps 2000 --output runs/mapping")
    group = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=_HELP, epilog=epilog)
    group.command("mapping", epilog=search_mapping.EPILOG)(search_mapping.command)
    group.command("architecture", epilog=search_architecture.EPILOG)(search_architecture.command)
    group.command("teacher-layer", epilog=search_teacher_layer.EPILOG)(search_teacher_layer.command)
    app.add_typer(group, name="search", rich_help_panel=panel)
