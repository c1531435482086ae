"""`limbeck methods`: the methods there are, and one method's options."""

from __future__ import annotations

from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.table import Table


def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method.", show_default=False)] = None,
) -> None:
    """List the methods, or show one: its source, and its options as YAML to paste into a recipe."""
    from limbeck.methods.registry import METHODS

    console = Console()
    if name is None:
        table = Table("method", "what is taught")
        for key, method in METHODS.items():
            table.add_row(key, method.summary)
        console.print(table)
        return
    method = METHODS[name]
    console.print(method.summary, highlight=False)
    if method.citation is not None:
        cited = method.citation
        console.print(f"{cited.title}, {cited.place}. {cited.url}", highlight=False, soft_wrap=True)
    for key, field in method.options.model_fields.items():
        console.print(f"  {key}: {field.description}", highlight=False, soft_wrap=True, markup=False)
    composition = {"method": {"name": name, **method.options().model_dump(mode="json")}}
    console.print(yaml.safe_dump(composition, sort_keys=False).rstrip(), highlight=False, markup=False)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example:  limbeck methods minilmv2")(methods)
