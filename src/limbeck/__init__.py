"""limbeck distils pretrained Transformer encoders into small, fast students."""

import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from limbeck.version import __version__

if sys.platform == "win32":
    raise ImportError("limbeck does not run on Windows itself; use the Windows Subsystem for Linux (WSL).")

# In a notebook without ipywidgets, the first library that imports `tqdm.auto` would print this warning. limbeck draws
# its own bars, so the warning would tell the reader nothing.
warnings.filterwarnings("ignore", message="IProgress not found")

if TYPE_CHECKING:
    from limbeck.api import (
        BenchmarkResult,
        ComparisonResult,
        EvaluationResult,
        ExportResult,
        FineTuningResult,
        InspectionResult,
        Plan,
        RunResult,
        SearchResult,
        TeachResult,
        TrimResult,
        benchmark,
        compare,
        distill,
        evaluate,
        export,
        finetune,
        finish,
        inspect,
        plan,
        report,
        search,
        teach,
        trim,
        validate,
    )
    from limbeck.errors import LimbeckError
    from limbeck.recipe.schema import Recipe
    from limbeck.training.distiller import Distiller

__all__ = [
    "BenchmarkResult",
    "ComparisonResult",
    "Distiller",
    "EvaluationResult",
    "ExportResult",
    "FineTuningResult",
    "InspectionResult",
    "LimbeckError",
    "Plan",
    "Recipe",
    "RunResult",
    "SearchResult",
    "TeachResult",
    "TrimResult",
    "__version__",
    "benchmark",
    "compare",
    "distill",
    "evaluate",
    "export",
    "finetune",
    "finish",
    "inspect",
    "plan",
    "report",
    "search",
    "teach",
    "trim",
    "validate",
]
_MODULES = {
    "Distiller": "limbeck.training.distiller",
    "LimbeckError": "limbeck.errors",
    "Recipe": "limbeck.recipe.schema",
}
"""Modules of the names that are not of `limbeck.api`."""
_CALLABLE_PACKAGES = ("benchmark", "export", "report", "search")
"""Names of functions that are packages too: these are called, see `limbeck.core.callable_packages`."""


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: torch and transformers take seconds."""
    if name not in __all__:
        raise AttributeError(f"module 'limbeck' has no attribute '{name}'")
    if name in _CALLABLE_PACKAGES:
        return import_module(f"limbeck.{name}")
    module = import_module(_MODULES.get(name, "limbeck.api"))
    return getattr(module, name)


def __dir__() -> list[str]:
    """List the public names, which are not there before they are used."""
    return sorted(__all__)
