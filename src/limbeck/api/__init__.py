"""The Python entry: what the commands do, with objects in the places of names, and results that show themselves."""

import logging
from typing import TYPE_CHECKING

from limbeck.core import import_when_used

if TYPE_CHECKING:
    from limbeck.api.benchmarking import BenchmarkResult, benchmark
    from limbeck.api.distilling import RunResult, distill, validate
    from limbeck.api.evaluating import (
        ComparisonResult,
        EvaluationResult,
        FineTuningResult,
        compare,
        evaluate,
        finetune,
    )
    from limbeck.api.exporting import ExportResult, export, report
    from limbeck.api.inspecting import InspectionResult, inspect
    from limbeck.api.searching import SearchResult, search

__getattr__, __dir__ = import_when_used(
    __name__,
    {
        "benchmarking": "BenchmarkResult benchmark",
        "distilling": "RunResult distill validate",
        "evaluating": "ComparisonResult EvaluationResult FineTuningResult compare evaluate finetune",
        "exporting": "ExportResult export report",
        "inspecting": "InspectionResult inspect",
        "searching": "SearchResult search",
    },
)

logging.getLogger("limbeck").addHandler(logging.NullHandler())
__all__ = [
    "BenchmarkResult",
    "ComparisonResult",
    "EvaluationResult",
    "ExportResult",
    "FineTuningResult",
    "InspectionResult",
    "RunResult",
    "SearchResult",
    "benchmark",
    "compare",
    "distill",
    "evaluate",
    "export",
    "finetune",
    "inspect",
    "report",
    "search",
    "validate",
]
