"""Kinds of tasks, a file each with all of its behaviour: rows, tokens, predictions, metrics, words and losses."""

from typing import TYPE_CHECKING

from limbeck.core import import_when_used
from limbeck.core.kinds import KindFacts

if TYPE_CHECKING:
    from limbeck.kinds.kind import Kind, LabelTerm, Metric
    from limbeck.kinds.registry import KINDS, register_as_kind
    from limbeck.kinds.scoring import score
    from limbeck.kinds.task import Task

__getattr__, __dir__ = import_when_used(
    __name__,
    {"kind": "Kind LabelTerm Metric", "registry": "KINDS register_as_kind", "scoring": "score", "task": "Task"},
)

__all__ = ["KINDS", "Kind", "KindFacts", "LabelTerm", "Metric", "Task", "register_as_kind", "score"]
