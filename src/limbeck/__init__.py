"""limbeck distils pretrained Transformer encoders into small, fast students."""

from typing import TYPE_CHECKING, Any

from limbeck.version import __version__

if TYPE_CHECKING:
    from limbeck.api import (
        ComparisonResult,
        EvaluationResult,
        FineTuningResult,
        RunResult,
        compare,
        distill,
        evaluate,
        finetune,
        validate,
    )
    from limbeck.recipe.schema import Recipe

__all__ = [
    "ComparisonResult",
    "EvaluationResult",
    "FineTuningResult",
    "Recipe",
    "RunResult",
    "__version__",
    "compare",
    "distill",
    "evaluate",
    "finetune",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: torch and transformers take seconds."""
    if name not in __all__:
        raise AttributeError(f"module 'limbeck' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module("limbeck.recipe.schema" if name == "Recipe" else "limbeck.api"), name)


def __dir__() -> list[str]:
    """List the public names, which are not there before they are used."""
    return sorted(__all__)
