"""The teachers cut to their lower layers, which MiniLM (table 2) and MiniLMv2 (table 1) compare with."""

from __future__ import annotations

from collections.abc import Iterator

from recipes.generator import minilm, minilmv2
from recipes.generator.document import Inline, PaperRecipe
from recipes.generator.settings import BERT_BASE, ROBERTA_BASE, columns, shape


def recipes() -> Iterator[PaperRecipe]:
    """Give both: the first six layers of a base-size teacher, and no stage."""
    bert = columns(minilm.TABLE_2, "69.9 81.2 90.8 87.9 41.4 65.5 82.7 90.4 76.2")
    roberta = columns(minilmv2.TABLE_1, "81M 2.0x 77.9 84.9 91.1 91.3 67.9 92.9 87.5 55.2 81.1")
    rows = (
        ("bert-base", BERT_BASE, minilm.PAPER, "table 2, Truncated BERT-base", bert, "76.2"),
        ("roberta-base", ROBERTA_BASE, minilmv2.PAPER, "table 1, Truncated RoBERTa-base", roberta, "81.1"),
    )
    for name, model, paper, row, published, average in rows:
        run = {
            "teacher": {"model": model},
            "student": {"shape": shape(6, 768), "initialise": Inline(layers="first", embeddings="copied")},
            "evaluation": {"quality": False},
        }
        yield PaperRecipe(
            f"truncated-6x768-{name}", paper, row, minilm.DEV, published, average, "no training", run,
            also=("The top 6 layers are dropped and nothing is trained before fine-tuning.",),
        )  # fmt: skip
