"""`limbeck methods`: the methods there are, and one method's card and composition."""

from typing import Annotated, Any

import typer

from limbeck.api.requests.completions import METHODS, RECIPE_CARDS, complete
from limbeck.cli.command import command
from limbeck.cli.messages import print_json, print_line, print_result
from limbeck.cli.options import Json
from limbeck.cli.recipe import print_recipe
from limbeck.core import blocks
from limbeck.core.escaping import TerminalConsole
from limbeck.errors import RecipeError


@command(
    "limbeck methods",
    "limbeck methods minilmv2",
    "limbeck methods minilmv2 --recipe > recipe.yaml",
    "limbeck methods tinybert --json",
)
def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="Method to show.", show_default=False, autocompletion=complete((*METHODS, *RECIPE_CARDS))),
    ] = None,
    recipe: Annotated[
        bool, typer.Option("--recipe", help="Print only a recipe that trains with this method, to edit and run.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the methods, or show one: its card, the terms of its loss, and a recipe to edit and run."""
    from limbeck.methods import composition as cards

    if name is None:
        if recipe:
            raise RecipeError("--recipe needs a method: limbeck methods NAME --recipe.")
        _list(as_json)
    elif name in cards.RECIPE_CARDS:
        if recipe:
            raise RecipeError(f"'{name}' is a way to write a recipe; `limbeck methods {name}` shows one.")
        if as_json:
            print_json({"name": name, "summary": cards.RECIPE_CARDS[name], "card": cards.read_card(name)})
        else:
            _print_card(cards.read_card(name))
    else:
        _print_method(name, recipe, as_json)


def _print_method(name: str, recipe: bool, as_json: bool) -> None:
    from limbeck.recipe.method_recipe import describe_method, method_recipe

    if recipe:
        print_recipe(method_recipe(name), as_json)
    elif as_json:
        print_json(describe_method(name))
    else:
        _show(describe_method(name), method_recipe(name))


def _list(as_json: bool) -> None:
    """Print a table of the methods, and of the ways to write a recipe that have a card."""
    from limbeck.methods import composition as cards
    from limbeck.methods import registry

    rows: list[dict[str, str | None]] = []
    for name, method in registry.METHODS.items():
        source = None  # A method from a plugin may have no citation.
        if method.citation is not None:
            source = f"{method.citation.url} {method.citation.place}"
        rows.append({"name": name, "summary": method.summary, "source": source})
    rows += [{"name": name, "summary": summary, "source": None} for name, summary in cards.RECIPE_CARDS.items()]

    headings = ("method", "what is taught", "source")
    table = blocks.Table(
        caption="",
        headings=headings,
        rows=tuple(tuple(value or "" for value in row.values()) for row in rows),
        # Every column holds words, no figures.
        words=tuple(range(len(headings))),
        layout=blocks.BOXED,
    )
    print_result(as_json, rows, [table])


def _show(method: dict[str, Any], recipe: str) -> None:
    console = TerminalConsole()
    _print_card(method["card"])
    if cited := method["citation"]:
        print_line("\n{authors} ({year}). {title}, {place}. {url}".format(**cited), console)
    console.print("\n[bold]Options[/bold]")
    for option, description in method["options"].items():
        print_line(f"  {option}: {description}", console)
    console.print(f"\n[bold]Terms[/bold], for BERT-base and a {method['student']} student")
    for term in method["terms"]:
        student, teacher = (", ".join(term[side]) for side in ("student", "teacher"))
        arrow = f" <- {teacher}" if teacher else ""
        print_line(f"  {term['method']}: {term['weight']:g} x {term['objective']}({student}{arrow})", console)
    console.print(f"\n[bold]Recipe[/bold] (limbeck methods {method['name']} --recipe > recipe.yaml)")
    print_line(recipe.rstrip(), console)


def _print_card(text: str) -> None:
    from rich.markdown import Markdown

    TerminalConsole().print(Markdown(text))
