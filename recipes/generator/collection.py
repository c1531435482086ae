"""All paper recipes, and the files made of them."""

from __future__ import annotations

from pathlib import Path

from recipes.generator import baselines, comparative, distilbert, elm, minilm, minilmv2, mlkd_bert, truncated
from recipes.generator.document import PaperRecipe
from recipes.generator.index import insert_index

RECIPES = Path(__file__).parents[1]
SECTIONS = {
    "MiniLM": minilm,
    "MiniLMv2": minilmv2,
    "Truncated teachers": truncated,
    "Comparative study": comparative,
    "DistilBERT": distilbert,
    "ELM and TinyBERT": elm,
    "MLKD-BERT": mlkd_bert,
    "Baselines: BERT-PKD, BERT-EMD and TinyBERT on tasks, and small BERTs": baselines,
}


def all_recipes() -> dict[str, list[PaperRecipe]]:
    """Return the recipes of every section of the index."""
    return {title: list(module.recipes()) for title, module in SECTIONS.items()}


def all_files() -> dict[Path, str]:
    """Return every file that is made, with its text."""
    sections = all_recipes()
    files = {RECIPES / "papers" / f"{recipe.name}.yaml": recipe.text for found in sections.values() for recipe in found}
    count = sum(map(len, sections.values()))
    assert len(files) == count, "two recipes have the same name"
    readme = RECIPES / "README.md"
    return files | {readme: insert_index(readme.read_text(encoding="utf-8"), sections)}
