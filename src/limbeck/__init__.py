"""limbeck distils pretrained Transformer encoders into small, fast students."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from limbeck.version import __version__

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
        benchmark,
        compare,
        distill,
        evaluate,
        export,
        finetune,
        inspect,
        plan,
        report,
        search,
        validate,
    )
    from limbeck.errors import LimbeckError
    from limbeck.recipe.schema import Recipe

__all__ = [
    "BenchmarkResult",
    "ComparisonResult",
    "EvaluationResult",
    "ExportResult",
    "FineTuningResult",
    "InspectionResult",
    "LimbeckError",
    "Plan",
    "Recipe",
    "RunResult",
    "SearchResult",
    "__version__",
    "benchmark",
    "compare",
    "distill",
    "evaluate",
    "export",
    "finetune",
    "inspect",
    "plan",
    "report",
    "search",
    "validate",
]
_PLACES = {"LimbeckError": "limbeck.errors", "Recipe": "limbeck.recipe.schema"}
"""Modules of those names that are not of `limbeck.api`."""
_ROOMS = ("benchmark", "export", "report", "search")
"""Names of functions of `limbeck.api` that are packages too: these can be called."""


class _Room(ModuleType):
    """A package below limbeck that is called as the function of its name in `limbeck.api`."""

    def _function(self) -> Any:
        from importlib import import_module

        return getattr(import_module("limbeck.api"), self.__name__.rpartition(".")[2])

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._function()(*args, **options)

    @property
    def __signature__(self) -> Any:
        import inspect as standard

        return standard.signature(self._function())


class _Package(ModuleType):
    """limbeck itself: whatever imports a package below it first, the package can be called."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _ROOMS and not callable(value):
            kind = type(value)
            value.__class__ = _Room if kind is ModuleType else type(kind.__name__, (_Room, kind), {})
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: torch and transformers take seconds."""
    if name not in __all__:
        raise AttributeError(f"module 'limbeck' has no attribute '{name}'")
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"limbeck.{name}")
    return getattr(import_module(_PLACES.get(name, "limbeck.api")), name)


def __dir__() -> list[str]:
    """List the public names, which are not there before they are used."""
    return sorted(__all__)


sys.modules[__name__].__class__ = _Package
