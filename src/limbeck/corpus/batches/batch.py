"""`Batch`: the inputs of student and teacher, the labels and the marks, and the columns in which it travels."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from limbeck.corpus.tokens.encoded_rows import OF_TEACHER

LABELS = "labels"
GROUPS = "groups"
FILLER = "filler"
"""Mark of a batch that only keeps a process in step with the others: it counts nothing."""
SKIPPED = "skipped"
"""Input of both models: how many first tokens of each row are not pooled."""

Inputs: TypeAlias = dict[str, Tensor]
"""What one model reads, by the names of its arguments: `input_ids` and `attention_mask`, `[B, L]`, and more."""


class Batch(NamedTuple):
    """A batch of B rows, by who reads what of it.

    On its way from the data loader to the module a batch is a flat dictionary of columns, which loaders, distributed
    wrappers and compilers move and cut like any other. The name of a column says who owns it:

    | column | owner |
    |---|---|
    | `labels`, `groups` | the terms |
    | `filler` | the training loop |
    | `teacher_NAME` | the teacher, as `NAME`; where there is one, the teacher reads nothing else |
    | any other | the student, and the teacher where it reads the same |

    Args:
        student: The student's inputs.
        teacher: The teacher's inputs; often the same dictionary.
        labels: Masked tokens `[B, L]`, classes or values `[B]`, or answers `[B, 2]`; None where nothing is labelled.
        groups: The number of each row's group `[B]`, where the rows of a query stand together.
    """

    student: Inputs
    teacher: Inputs
    labels: Tensor | None
    groups: Tensor | None


def read_batch(columns: Mapping[str, Any]) -> Batch:
    """Return the batch whose columns are given."""
    student: Inputs = {}
    teacher: Inputs = {}
    for name, value in columns.items():
        if name in (LABELS, GROUPS, FILLER):
            continue
        if name.startswith(OF_TEACHER):
            teacher[name.removeprefix(OF_TEACHER)] = value
        else:
            student[name] = value
    return Batch(student, teacher or student, columns.get(LABELS), columns.get(GROUPS))


def without_marks(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that models and terms read, without those of the training loop."""
    return {name: value for name, value in columns.items() if name != FILLER}
