"""The record of a mapping search, as small as shows everything: ELM's first and fourth generation of 4 layers."""

from __future__ import annotations

from typing import Any

SCORES = ("sst2", "squad")


def candidate(mapping: list[int], gene: str, first: float, second: float, generation: int) -> dict[str, Any]:
    return {
        "mapping": mapping,
        "gene": gene,
        "fitness": (first + second) / 2,
        "scores": {"sst2": first, "squad": second},
        "generation": generation,
        "trial": generation,
        "training_seconds": 40.0,
        "scoring_seconds": 10.0,
    }


def record() -> dict[str, Any]:
    best = candidate([0, 0, 5, 10], "000-000-010-101", 88.0, 76.04, 2)
    worse = candidate([0, 0, 6, 10], "000-000-011-101", 87.0, 75.82, 1)
    worst = candidate([1, 3, 5, 12], "001-010-010-111", 85.0, 72.82, 1)
    none = {"pairs": 0, "crossings": 0, "crossing_draws": 0, "mutations": 0, "mutation_draws": 0}
    bred = {"pairs": 1, "crossings": 1, "crossing_draws": 3, "mutations": 2, "mutation_draws": 2}
    return {
        "kind": "mapping",
        "name": "elm-4",
        "status": "finished",
        "teacher": {"name": "bert-base", "shape": "bert 12x768"},
        "student": {"shape": "bert 4x312"},
        "methods": ["elm"],
        "space": {"size": 1048, "student layers": 4, "teacher layers": 12},
        "scores": list(SCORES),
        "share": 0.1,
        "generations": [
            {
                "number": 1, "maximum": 81.41, "minimum": 78.91, "mean": 80.16, "deviation": 1.25, "size": 2,
                "evaluated": 2, "best": [0, 0, 6, 10], "best_gene": "000-000-011-101",
                "members": [worse["gene"], worst["gene"]], "breeding": none,
            },
            {
                "number": 2, "maximum": 82.02, "minimum": 81.41, "mean": 81.715, "deviation": 0.305, "size": 3,
                "evaluated": 1, "best": [0, 0, 5, 10], "best_gene": "000-000-010-101",
                "members": [best["gene"], worse["gene"]], "breeding": bred,
            },
        ],
        "candidates": [best, worse, worst],
        "best": best,
        "recipe": {"name": "elm", "stages": [{"method": {"name": "elm", "mapping": [0, 0, 5, 10]}}]},
        "cost": {"evaluations": 3, "failed": 1, "training_seconds": 120.0, "scoring_seconds": 30.0},
        "given_up": [{"mapping": [2, 4, 6, 8], "gene": "010-011-011-011", "problem": "its training diverged"}],
    }  # fmt: skip
