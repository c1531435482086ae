"""Every name of limbeck's that is not public and that snapshots need: when a module moves, its line here changes."""

from __future__ import annotations

from typing import Any

from limbeck.benchmark.loss_cases import CONTESTS
from limbeck.evaluation.metrics.scoring import METRICS
from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.evaluation.tasks import TASK_GROUPS, TASKS
from limbeck.evaluation.tasks.registry import DEFINITIONS
from limbeck.export.formats import FORMATS
from limbeck.methods import METHODS
from limbeck.models.family_table import families
from limbeck.models.presets import presets
from limbeck.objectives import OBJECTIVES


def registered_names() -> dict[str, Any]:
    """Return the names in each registry; files, recipes and command lines hold them."""
    return {
        "families": sorted(families),
        "formats": list(FORMATS),
        "groups of tasks": sorted(TASK_GROUPS),
        "losses measured by limbeck benchmark": list(CONTESTS),
        "methods": list(METHODS),
        "metrics": list(METRICS),
        "objectives": list(OBJECTIVES),
        "presets": list(presets),
        "protocols": list(PROTOCOLS),
        "tasks": list(TASKS),
    }


def registered_contents() -> dict[str, Any]:
    """Return what is registered as data, by kind and name."""
    return {
        "families": dict(families.items()),
        "groups of tasks": TASK_GROUPS,
        "presets": dict(presets.items()),
        "protocols": dict(PROTOCOLS.items()),
        "tasks": dict(DEFINITIONS.items()),
    }
