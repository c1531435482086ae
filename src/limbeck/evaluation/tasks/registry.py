"""Every task by its name, and the groups that a user may ask for."""

from __future__ import annotations

from pathlib import Path

from limbeck.core.registry import Registry
from limbeck.errors import CorpusError, RecipeError, suggestion
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.evaluation.tasks.glue import glue_tasks
from limbeck.evaluation.tasks.inference import chinese_tasks, few_chinese_tasks, xnli
from limbeck.evaluation.tasks.questions import cmrc2018, cross_lingual_question_tasks, question_tasks
from limbeck.evaluation.tasks.similarity import similarity_tasks
from limbeck.evaluation.tasks.task import Task

DEFINITIONS: Registry[TaskDefinition] = Registry("task")
"""Name to task and sources."""

TASKS: Registry[Task] = Registry("task")
"""Name to task."""

for _definition in (
    *glue_tasks(),
    *question_tasks(),
    xnli(),
    *cross_lingual_question_tasks(),
    *chinese_tasks(),
    cmrc2018(),
    *few_chinese_tasks(),
    *similarity_tasks(),
):
    DEFINITIONS.register(_definition.task.name, _definition)
    TASKS.register(_definition.task.name, _definition.task)

_GLUE = ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli")

TASK_GROUPS: dict[str, tuple[str, ...]] = {
    "glue": _GLUE,
    "glue_leaderboard": (*_GLUE, "ax"),
    "qa": ("squad", "squad2"),
    "cross_lingual": ("xnli", "mlqa", "xquad"),
    "chinese": ("cmnli", "csl", "cmrc2018"),
    "few_chinese": ("few_csl", "few_ocnli"),
    "similarity": ("stsb_cosine", "sick_cosine"),
}
"""Name of a group to its tasks; `chinese` has those of ELM's table 7."""


def is_own_task(name: str) -> bool:
    """Whether a name is the path of a YAML file that describes a task."""
    return Path(name).suffix.lower() in (".yaml", ".yml")


def _is_file(name: str) -> bool:
    try:
        return Path(name).expanduser().is_file()
    except (RuntimeError, OSError):  # The home of a user who is not known, or a name too long for the system.
        return False


def parse_tasks(text: str) -> list[str]:
    """Return the names in a comma-separated list, groups expanded, each once and in order.

    Args:
        text: Names of tasks and groups, and paths of YAML files, for example `"glue,squad,my_task.yaml"`.

    Raises:
        RecipeError: for a name that is neither, with a suggestion, and for an empty list.
        CorpusError: for a YAML file that does not exist.
    """
    found: dict[str, None] = {}
    for name in filter(None, (part.strip() for part in text.split(","))):
        if is_own_task(name):
            if not _is_file(name):
                raise CorpusError(f"The task file '{name}' does not exist.")
            found[name] = None
        elif name in TASK_GROUPS or name in TASKS:
            found |= dict.fromkeys(TASK_GROUPS.get(name, (name,)))
        else:
            raise RecipeError(f"Unknown task '{name}'.{suggestion(name, [*TASK_GROUPS, *TASKS])}")
    if not found:
        raise RecipeError(f"'{text}' names no task.{suggestion(text, [*TASK_GROUPS, *TASKS])}")
    return list(found)
