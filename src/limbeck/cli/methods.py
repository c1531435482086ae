"""`limbeck methods`: the methods there are, and one method's card and composition."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown

from limbeck.cli.messages import print_json, print_line, result_console
from limbeck.cli.options import METHODS, RECIPE_CARDS, Json, complete, with_examples
from limbeck.core.blocks import BOXED, Table, console


@with_examples(
    "limbeck methods",
    "limbeck methods minilmv2",
    "limbeck methods minilmv2 --recipe > recipe.yaml",
    "limbeck methods tinybert --json",
)
def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show this method.", show_default=False, autocompletion=complete((*METHODS, *RECIPE_CARDS))
        ),
    ] = None,
    recipe: Annotated[
        bool, typer.Option("--recipe", help="Print only a recipe that trains with this method, to edit and run.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the methods, or show one: its card, the terms it comes to, and a recipe to edit and run."""
    from limbeck.errors import RecipeError
    from limbeck.methods import composition as cards

    if name is None:
        if recipe:
            raise RecipeError("Say which method: limbeck methods NAME --recipe.")
        _list(as_json)
    elif name in cards.RECIPE_CARDS:
        if recipe:
            raise RecipeError(f"'{name}' is a way to write a recipe; `limbeck methods {name}` shows one.")
        if as_json:
            print_json({"name": name, "summary": cards.RECIPE_CARDS[name], "card": cards.read_card(name)})
        else:
            Console().print(Markdown(cards.read_card(name)))
    elif recipe:
        _print_recipe(name, as_json)
    elif as_json:
        print_json(_described(name))
    else:
        _show(name)


def _list(as_json: bool) -> None:
    from limbeck.methods import composition as cards
    from limbeck.methods import registry

    rows = [
        {"name": name, "summary": method.summary, "source": _source(method.citation)}
        for name, method in registry.METHODS.items()
    ]
    rows += [{"name": name, "summary": summary, "source": None} for name, summary in cards.RECIPE_CARDS.items()]
    if as_json:
        print_json(rows)
        return
    cells = tuple((str(row["name"]), str(row["summary"]), row["source"] or "") for row in rows)
    table = Table("", ("method", "what is taught", "source"), cells, words=(0, 1, 2), layout=BOXED)
    result_console().print(console(table))


def _source(citation: Any) -> str | None:
    return None if citation is None else f"{citation.url} {citation.place}"


def _print_recipe(name: str, as_json: bool) -> None:
    from limbeck.core.yaml import parse_yaml
    from limbeck.recipe.method_recipe import method_recipe

    text = method_recipe(name)
    if as_json:
        print_json(parse_yaml(text, "The recipe"))
    else:
        typer.echo(text, nl=False)


def _described(name: str) -> dict[str, Any]:
    """A method as plain values: what `limbeck methods NAME` shows."""
    from limbeck.core.yaml import parse_yaml
    from limbeck.methods import registry
    from limbeck.recipe.method_recipe import method_recipe, method_terms

    method = registry.METHODS[name]
    shape, composed = method_terms(name)
    terms = [
        {
            "stage": number,
            "method": stage,
            "weight": term.weight,
            "objective": term.objective,
            "student": [str(key) for key in term.student],
            "teacher": [str(key) for key in term.teacher],
        }
        for number, (stage, found) in enumerate(composed, start=1)
        for term in found
    ]
    return {
        "name": name,
        "summary": method.summary,
        "citation": None if method.citation is None else asdict(method.citation),
        "card": _card(name),
        "options": _options(name),
        "student": shape,
        "terms": terms,
        "recipe": parse_yaml(method_recipe(name), "The recipe"),
    }


def _card(name: str) -> str:
    """The card of a method; one from a plugin has none, and is told in its sentence."""
    from limbeck.methods import composition as cards
    from limbeck.methods import registry

    return cards.read_card(name) or f"# {name}\n\n{registry.METHODS[name].summary}\n"


def _options(name: str) -> dict[str, str]:
    """The options of a method, and of other methods in its stages, with what they are."""
    from limbeck.methods import registry
    from limbeck.recipe.method_recipe import stages_of

    used = dict.fromkeys(stage["name"] for stage in stages_of(registry.METHODS[name]))
    return {
        f"{'' if other == name else f'{other}.'}{key}": field.description or ""
        for other in used
        for key, field in registry.METHODS[other].options.model_fields.items()
    }


def _show(name: str) -> None:
    from limbeck.methods import registry
    from limbeck.recipe.method_recipe import method_recipe, method_terms

    method = registry.METHODS[name]
    console = Console()
    console.print(Markdown(_card(name)))
    if method.citation is not None:
        cited = method.citation
        print_line(f"\n{cited.authors} ({cited.year}). {cited.title}, {cited.place}. {cited.url}", console)
    console.print("\n[bold]Options[/bold]")
    for option, description in _options(name).items():
        print_line(f"  {option}: {description}", console)
    shape, composed = method_terms(name)
    console.print(f"\n[bold]Terms[/bold], for BERT-base and a {shape} student")
    for stage, terms in composed:
        for term in terms:
            student, teacher = (", ".join(map(str, keys)) for keys in (term.student, term.teacher))
            arrow = f" <- {teacher}" if teacher else ""
            print_line(f"  {stage}: {term.weight:g} x {term.objective}({student}{arrow})", console)
    console.print(f"\n[bold]Recipe[/bold] (limbeck methods {name} --recipe > recipe.yaml)")
    print_line(method_recipe(name).rstrip(), console)
