"""`limbeck methods`: the methods there are, and one method's card and composition."""

from typing import Annotated

import typer

from limbeck.api.requests import completions
from limbeck.cli.command import command
from limbeck.cli.messages import print_json, print_line, print_result
from limbeck.cli.options import Json
from limbeck.cli.recipe import print_recipe
from limbeck.core import blocks
from limbeck.core.escaping import TerminalConsole
from limbeck.errors import RecipeError

# The names that a shell completes are written down apart, so that completing them imports no method.
_complete_method = completions.complete((*completions.METHODS, *completions.RECIPE_CARDS))


@command(
    "limbeck methods",
    "limbeck methods minilmv2",
    "limbeck methods minilmv2 --recipe > recipe.yaml",
    "limbeck methods tinybert --json",
)
def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="Method to show.", show_default=False, autocompletion=_complete_method),
    ] = None,
    recipe: Annotated[
        bool, typer.Option("--recipe", help="Print only a recipe that trains with this method, to edit and run.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the methods, or show one: its card, the terms of its loss, and a recipe to edit and run."""
    from limbeck.methods.cards import RECIPE_CARDS

    if name is None:
        if recipe:
            raise RecipeError("--recipe needs the name of a method: limbeck methods NAME --recipe.")
        _print_list(as_json)
    elif name in RECIPE_CARDS:
        if recipe:
            raise RecipeError(
                f"'{name}' is not a method but a pattern of a recipe, so --recipe cannot print it; `limbeck "
                f"methods {name}` shows an example."
            )
        _print_recipe_card(name, as_json)
    elif recipe:
        from limbeck.recipe.method_recipe import method_recipe

        print_recipe(method_recipe(name), as_json)
    else:
        _print_method(name, as_json)


def _print_list(as_json: bool) -> None:
    """Print a table of the methods, and of the ways to write a recipe that have a card."""
    from limbeck.methods.cards import RECIPE_CARDS
    from limbeck.methods.registry import METHODS

    rows: list[dict[str, str | None]] = []
    for name, method in METHODS.items():
        source = None  # A method from a plugin may have no citation.
        if method.citation is not None:
            source = f"{method.citation.url} {method.citation.place}"
        rows.append({"name": name, "summary": method.summary, "source": source})
    rows += [{"name": name, "summary": summary, "source": None} for name, summary in RECIPE_CARDS.items()]

    cells = [tuple(value or "" for value in row.values()) for row in rows]
    headings = ("method", "what is taught", "source")
    table = blocks.Table(
        caption="",
        headings=headings,
        rows=tuple(cells),
        words=tuple(range(len(headings))),  # Every column holds words, no figures.
        layout=blocks.BOXED,
    )
    print_result(as_json, rows, [table])


def _print_recipe_card(name: str, as_json: bool) -> None:
    """Print the card of a way to write a recipe, such as for several languages."""
    from limbeck.methods.cards import RECIPE_CARDS, read_card

    if as_json:
        print_json({"name": name, "summary": RECIPE_CARDS[name], "card": read_card(name)})
    else:
        _print_card(read_card(name))


def _print_method(name: str, as_json: bool) -> None:
    """Print a method: its card, source, options and terms, and a recipe."""
    from limbeck.recipe.method_recipe import describe_method, method_recipe

    method = describe_method(name)
    if as_json:
        print_json(method)
        return

    console = TerminalConsole()
    _print_card(method["card"])
    citation = method["citation"]
    if citation is not None:
        print_line("\n{authors} ({year}). {title}, {place}. {url}".format(**citation), console)

    console.print("\n[bold]Options[/bold]")
    for option, description in method["options"].items():
        print_line(f"  {option}: {description}", console)

    console.print(f"\n[bold]Terms[/bold], for BERT-base and a {method['student']} student")
    for term in method["terms"]:
        streams = ", ".join(term["student"])
        if term["teacher"]:
            streams += f" <- {', '.join(term['teacher'])}"
        print_line(f"  {term['method']}: {term['weight']:g} x {term['objective']}({streams})", console)

    console.print(f"\n[bold]Recipe[/bold] (limbeck methods {name} --recipe > recipe.yaml)")
    print_line(method_recipe(name).rstrip(), console)


def _print_card(text: str) -> None:
    """Print Markdown as a terminal shows it."""
    from rich.markdown import Markdown

    TerminalConsole().print(Markdown(text))
