"""The tasks that models are evaluated on: what they are, and their rows.

The flow: `registry` names every task; its `definition` says where each split is; `load_task` finds the files (`files`)
or the Hub's data set (`hub`), makes `TaskRow`s of what is there (`rows`, `labels`) and counts them; `write_submission`
writes what a model predicts for unlabelled splits.
"""

from limbeck.evaluation.tasks.load import load_task
from limbeck.evaluation.tasks.predictions import AnswerPrediction, Predictions
from limbeck.evaluation.tasks.registry import TASK_GROUPS, TASKS, is_own_task, parse_tasks
from limbeck.evaluation.tasks.submission import answer_text, write_submission
from limbeck.evaluation.tasks.task import METRIC_NAMES, SplitFacts, Task, TaskData, TaskKind, TaskRow

__all__ = [
    "METRIC_NAMES",
    "TASKS",
    "TASK_GROUPS",
    "AnswerPrediction",
    "Predictions",
    "SplitFacts",
    "Task",
    "TaskData",
    "TaskKind",
    "TaskRow",
    "answer_text",
    "is_own_task",
    "load_task",
    "parse_tasks",
    "write_submission",
]
