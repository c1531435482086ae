"""`limbeck methods`: the methods there are, and one method's card and composition."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table


def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method.", show_default=False)] = None,
    recipe: Annotated[
        bool, typer.Option("--recipe", help="Print only a recipe that trains with this method, to edit and run.")
    ] = False,
) -> None:
    """List the methods, or show one: its card, the terms it comes to, and a recipe to edit and run."""
    from limbeck.errors import RecipeError
    from limbeck.methods.cards import RECIPE_CARDS, read_card
    from limbeck.methods.registry import METHODS

    console = Console()
    if name is None:
        if recipe:
            raise RecipeError("Say which method: limbeck methods NAME --recipe.")
        table = Table("method", "what is taught", "source")
        for key, method in METHODS.items():
            cited = method.citation
            table.add_row(key, method.summary, f"{cited.url} {cited.place}" if cited is not None else "")
        for key, summary in RECIPE_CARDS.items():
            table.add_row(key, summary, "")
        console.print(table)
        return
    if name in RECIPE_CARDS:
        if recipe:
            raise RecipeError(f"'{name}' is a way to write a recipe; `limbeck methods {name}` shows one.")
        console.print(Markdown(read_card(name)))
        return
    from limbeck.recipe.method_recipe import method_recipe

    if recipe:
        METHODS[name]
        typer.echo(method_recipe(name), nl=False)
        return
    _show(name, console)


def _show(name: str, console: Console) -> None:
    from limbeck.methods.cards import read_card
    from limbeck.methods.registry import METHODS
    from limbeck.recipe.method_recipe import method_recipe, method_terms, stages_of

    method = METHODS[name]
    console.print(Markdown(read_card(name)))
    if method.citation is not None:
        cited = method.citation
        console.print(f"\n{cited.authors} ({cited.year}). {cited.title}, {cited.place}. {cited.url}", highlight=False)
    console.print("\n[bold]Options[/bold]")
    for used in dict.fromkeys(stage["name"] for stage in stages_of(method)):
        for key, field in METHODS[used].options.model_fields.items():
            owner = "" if used == name else f"{used}."
            console.print(f"  {owner}{key}: {field.description}", highlight=False, soft_wrap=True, markup=False)
    shape, composed = method_terms(name)
    console.print(f"\n[bold]Terms[/bold], for BERT-base and a {shape} student")
    for stage, terms in composed:
        for term in terms:
            student, teacher = (", ".join(map(str, keys)) for keys in (term.student, term.teacher))
            arrow = f" <- {teacher}" if teacher else ""
            line = f"  {stage}: {term.weight:g} x {term.objective}({student}{arrow})"
            console.print(line, highlight=False, soft_wrap=True, markup=False)
    console.print("\n[bold]Recipe[/bold] (limbeck methods " + name + " --recipe > recipe.yaml)")
    console.print(method_recipe(name).rstrip(), highlight=False, markup=False, soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example:  limbeck methods minilmv2 --recipe > recipe.yaml")(methods)
