"""The Python entry: `finetune` a teacher, `distill` a recipe, `evaluate` models, `compare` methods side by side."""

import logging

from limbeck.api.distilling import RunResult, distill, validate
from limbeck.api.evaluating import (
    ComparisonResult,
    EvaluationResult,
    FineTuningResult,
    compare,
    evaluate,
    finetune,
)

logging.getLogger("limbeck").addHandler(logging.NullHandler())
__all__ = [
    "ComparisonResult",
    "EvaluationResult",
    "FineTuningResult",
    "RunResult",
    "compare",
    "distill",
    "evaluate",
    "finetune",
    "validate",
]
