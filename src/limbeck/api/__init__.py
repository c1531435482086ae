"""The Python entry: what the commands do, with objects in the places of names, and results that show themselves."""

import logging
from typing import TYPE_CHECKING

from limbeck.core import import_when_used

if TYPE_CHECKING:
    from limbeck.api.benchmarking import BenchmarkResult, benchmark
    from limbeck.api.comparing import ComparisonResult, compare
    from limbeck.api.distilling import RunResult, distill, validate
    from limbeck.api.evaluating import EvaluationResult, evaluate
    from limbeck.api.exporting import ExportResult, export
    from limbeck.api.fine_tuning import FineTuningResult, finetune
    from limbeck.api.finishing import finish
    from limbeck.api.inspecting import InspectionResult, inspect
    from limbeck.api.planning import Plan, plan
    from limbeck.api.reporting import report
    from limbeck.api.searching import SearchResult, search
    from limbeck.api.teaching import TeachResult, teach
    from limbeck.api.trimming import TrimResult, trim

__getattr__, __dir__ = import_when_used(
    __name__,
    {
        "benchmarking": "BenchmarkResult benchmark",
        "comparing": "ComparisonResult compare",
        "distilling": "RunResult distill validate",
        "evaluating": "EvaluationResult evaluate",
        "exporting": "ExportResult export",
        "fine_tuning": "FineTuningResult finetune",
        "finishing": "finish",
        "inspecting": "InspectionResult inspect",
        "planning": "Plan plan",
        "reporting": "report",
        "searching": "SearchResult search",
        "teaching": "TeachResult teach",
        "trimming": "TrimResult trim",
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
    "Plan",
    "RunResult",
    "SearchResult",
    "TeachResult",
    "TrimResult",
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
