"""The index in `recipes/README.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from recipes.generator.coverage import coverage_table
from recipes.generator.document import PaperRecipe

BEGIN, END = "<!-- index: made by recipes.generator -->", "<!-- end of index -->"


def insert_index(readme: str, sections: Mapping[str, Sequence[PaperRecipe]]) -> str:
    """Replace what stands between the two marks.

    Args:
        readme: The page, with both marks.
        sections: Title to recipes.
    """
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([f"{before}{BEGIN}", *_index(sections), f"{END}{after}"])


def _index(sections: Mapping[str, Sequence[PaperRecipe]]) -> Iterator[str]:
    yield ""
    yield "Rows of the five papers' tables, as `limbeck evaluate` shows them beside students, and what reproduces them:"
    yield ""
    yield from coverage_table(recipe for recipes in sections.values() for recipe in recipes)
    for title, recipes in sections.items():
        yield from (
            "",
            f"### {title} ({len(recipes)})",
            "",
            "| file | reproduces | published | reads |",
            "|---|---|---|---|",
        )
        for recipe in recipes:
            link = f"[{recipe.name}](papers/{recipe.name}.yaml)"
            row = f"{recipe.paper.partition(' (')[0]}, {recipe.row}"
            yield f"| {link} | {row} | {recipe.average} | {recipe.cost} |"
    yield ""
