"""`Batch`: the inputs of student and teacher and the labels of some rows, and the columns that a batch is made of."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from limbeck.corpus.text.text_keys import TEXT_KEY
from limbeck.corpus.tokens.encoded_rows import OF_TEACHER

LABELS = "labels"
GROUPS = "groups"
FILLER = "filler"
"""Column that marks a *filler*, a batch that only keeps a process in step with the others and counts nothing."""
SKIPPED = "skipped"
"""Input of both models: how many tokens at the beginning of each row, its prompt, are left out of the pooling."""

Inputs: TypeAlias = dict[str, Tensor]
"""What one model reads, by the names of its arguments: `input_ids` and `attention_mask`, `[B, L]`, and more."""


class Batch(NamedTuple):
    """A batch of B rows of at most L tokens, divided by its readers.

    Between the data loader and the module a batch is a flat dictionary of columns, which loaders, distributed wrappers
    and compilers can move and divide. The name of a column says who reads it:

    | column | reader |
    |---|---|
    | `labels`, `groups` | the terms of the loss |
    | `text_key` | a teaching that knows texts by their keys |
    | `filler` | the training loop |
    | `teacher_NAME` | the teacher, as `NAME`; where there is one, the teacher reads nothing else |
    | any other | the student, and the teacher where it reads the same |

    Args:
        student: The student's inputs.
        teacher: The teacher's inputs; often the same dictionary.
        labels: Masked tokens `[B, L]`, classes or values `[B]`, or answers `[B, 2]`; None without labels.
        groups: The number of each row's group `[B]`; the rows of a query are a group. None without groups.
        text_keys: The key of each row's text, int64 `[B]`; None in corpora without keys.
    """

    student: Inputs
    teacher: Inputs
    labels: Tensor | None
    groups: Tensor | None
    text_keys: Tensor | None = None


def read_batch(columns: Mapping[str, Any]) -> Batch:
    """Return the batch that some columns make up."""
    student: Inputs = {}
    teacher: Inputs = {}
    for name, value in columns.items():
        if name in (LABELS, GROUPS, FILLER, TEXT_KEY):
            continue
        if name.startswith(OF_TEACHER):
            teacher[name.removeprefix(OF_TEACHER)] = value
        else:
            student[name] = value
    # Without columns of its own the teacher reads what the student reads.
    return Batch(student, teacher or student, columns.get(LABELS), columns.get(GROUPS), columns.get(TEXT_KEY))


def without_marks(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that models and terms read, without those of the training loop."""
    return {name: value for name, value in columns.items() if name != FILLER}
