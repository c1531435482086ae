"""Names that a shell completes. They are written down here, since asking the registries would import torch.

A test compares them with the registries.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from limbeck.api.requests.fields import Complete

RECIPE_CARDS = ("teacher_assistant", "truncated_teacher")
"""Cards of ways to write a recipe; all others are of methods."""
_PACKAGE = Path(__file__).parents[2]


def _stems(folder: str, pattern: str) -> list[str]:
    """Return the names of the package's files in a folder, without their ends."""
    return sorted(path.stem for path in (_PACKAGE / folder).glob(pattern))


METHODS = tuple(name for name in _stems("methods/method_cards", "*.md") if name not in (*RECIPE_CARDS, "README"))
STUDENTS = (
    "minilm-6x384", "minilm-4x384", "minilm-3x384", "minilm-12x384", "minilm-6x768", "minilmv2-12x384-e128",
    "tinybert-4x312", "nas-4x576", "nas-3x384",
)  # fmt: skip
TASK_GROUPS = ("glue", "glue_leaderboard", "qa", "cross_lingual", "chinese", "few_chinese", "similarity", "tagging")
TASKS = _stems("evaluation/data/tasks", "*.yaml")
PROTOCOLS = _stems("evaluation/data/protocols", "*.yaml")
OBJECTIVES = ("relation_kl", "attention_score_mse", "soft_label_kl")
DTYPES = ("float32", "bfloat16", "float16")


def complete(names: Iterable[str]) -> Complete:
    """Return a function that completes one of `names`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def complete_list(names: Sequence[str]) -> Complete:
    """Return a function that completes the last of names separated by commas, leaving out those that are there."""

    def completions(incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        written = before.split(",")
        candidates = [name for name in names if name.startswith(begun) and name not in written]
        return [f"{before}{comma}{name}" for name in candidates]

    return completions
