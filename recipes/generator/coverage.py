"""How many published rows there are, which of them a file reproduces, and why the others have none."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from recipes.generator.document import PaperRecipe

TABLES = Path(__file__).parents[2] / "src" / "limbeck" / "evaluation" / "data" / "published"
FILE, OPTION, GIVEN, OTHER = (
    "a file",
    "a file and options",
    "published models, not distilled",
    "another architecture",
)
PAPERS = {
    "minilm": "MiniLM",
    "minilmv2": "MiniLMv2",
    "comparative_study": "Comparative study",
    "elm": "ELM",
    "mlkd_bert": "MLKD-BERT",
}
BASELINES = ("BERT-tiny", "BERT-small", "Fine-tuning", "Truncated BERT-base", "Truncated RoBERTa-base")
# Students that have a file with other numbers: a paper quotes them, or has trained them anew.
QUOTED = {
    ("elm", "3", "Fine-tuning"),
    ("elm", "3", "DistilBERT"),
    ("elm", "4", "Fine-tuning"),
    ("minilmv2", "5", "MiniLM"),
    ("minilmv2", "6", "MiniLM"),
    ("mlkd_bert", "1", "DistilBERT"),
    ("mlkd_bert", "2", "DistilBERT"),
}
CHANGED_BY_OPTIONS = {("mlkd_bert", table) for table in "45678"}
_NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?!\w)")


def coverage(recipes: Iterable[PaperRecipe]) -> dict[str, Counter[str | None]]:
    """Count the published rows of every paper by what they have.

    A row has a file where all its scores stand at the head of files of its shape.

    Returns:
        Name of a paper to counts; under None are rows without a file and without a reason.
    """
    heads: dict[str, set[float]] = defaultdict(set)
    for recipe in recipes:
        shape = recipe.body["student"]["shape"]
        head = recipe.text.partition("\n\n")[0]
        heads[f"{shape['layers']}x{shape['hidden']}"] |= {float(number) for number in _NUMBER.findall(head)}
    found: dict[str, Counter[str | None]] = {}
    for stem, name in PAPERS.items():
        tables = yaml.safe_load((TABLES / f"{stem}.yaml").read_text(encoding="utf-8"))["tables"]
        rows = [(table["table"], row) for table in tables for row in table["rows"]]
        found[name] = Counter(_has(stem, table, row, heads[row["shape"]]) for table, row in rows)
    return found


def _has(paper: str, table: str, row: dict[str, Any], numbers: set[float]) -> str | None:
    if "teacher" not in row and row["model"] not in BASELINES:
        return GIVEN
    if (paper, table, row["model"]) in QUOTED or {float(score) for score in row["scores"] if score} <= numbers:
        return FILE
    if (paper, table) in CHANGED_BY_OPTIONS:
        return OPTION
    return OTHER if row["model"] == "MobileBERT" else None


def coverage_table(recipes: Iterable[PaperRecipe]) -> Iterator[str]:
    """Write the counts as a table of Markdown."""
    columns = (FILE, OPTION, GIVEN, OTHER)
    counts = coverage(recipes)
    counts["together"] = sum(counts.values(), Counter())
    yield f"| paper | rows | {' | '.join(columns)} |"
    yield "|---" + "|---:" * (len(columns) + 1) + "|"
    for name, count in counts.items():
        yield f"| {name} | {count.total()} | {' | '.join(str(count[column]) for column in columns)} |"
