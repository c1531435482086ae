"""Parameters, and rows of embedding tables, that no stage trained, and the values that they get.

A parameter is not trained if no term reaches it, as the last block's feed-forward layer where only queries, keys and
values are taught, or if the recipe freezes it. A row of an embedding table is not trained if no batch read it. The
*kind* of a table is `tokens`, `positions` or `segments`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from limbeck.core.records import Stage, UnreadRows
from limbeck.methods.term import Term
from limbeck.models import families
from limbeck.models.bases import word_bases
from limbeck.models.start import bases_of
from limbeck.models.start_embeddings import embedding_mode
from limbeck.models.start_step import StartSettings
from limbeck.training.read_rows import read_ranges, write_ranges

_RANGES_IN_RECORD = 20
"""Ranges of rows that a record lists."""


def never_trained(records: Sequence[Stage]) -> tuple[list[str], list[str]]:
    """Find the parameters that no stage trained.

    Args:
        records: The records of the stages: `untrained` are the parameters that no term reached, `frozen` those that the
            recipe froze.

    Returns:
        Two lists of parameters that no stage trained: those that at least one stage did not freeze but no term reached,
        and those that every stage froze.
    """
    if not records:
        return [], []
    left_out: list[str] = []
    frozen: list[str] = []
    # A parameter that no stage trained is in the lists of every stage, so those of the first have all of them.
    first = records[0]
    for name in (*first.frozen, *first.untrained):
        if all(name in record.frozen for record in records):
            frozen.append(name)
        elif all(name in record.frozen or name in record.untrained for record in records):
            left_out.append(name)
    return left_out, frozen


def never_read(records: Sequence[Stage], student: PreTrainedModel) -> dict[str, NDArray[np.bool_]]:
    """Find the rows of embedding tables that no stage trained, since no batch read them.

    Args:
        records: The records of the stages; `unread` are the ranges of rows by name of the table's parameter.
        student: The student that they trained.

    Returns:
        A mask of the rows `[rows of the table]` by kind of table, for tables that have any. A table that no stage
        trained at all is left out, since it is listed as a parameter.
    """
    if not records:
        return {}
    left_out, frozen = never_trained(records)
    rows_by_kind: dict[str, NDArray[np.bool_]] = {}
    for kind, table in families.embedding_tables(student).items():
        name = f"{table.name}.weight"
        if name in left_out or name in frozen:
            continue
        # A row is left if no stage has read it. A stage whose record has no ranges has read every row (or the record is
        # of an earlier version).
        rows = np.ones(table.module.num_embeddings, dtype=np.bool_)
        for record in records:
            rows &= read_ranges(record.unread.get(name, ""), len(rows))
        if rows.any():
            rows_by_kind[kind] = rows
    return rows_by_kind


def fill_rows(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    rows: Mapping[str, NDArray[np.bool_]],
    start: StartSettings | None = None,
) -> list[str]:
    """Give rows of embedding tables the teacher's values, as `start_student` does: copied, or projected.

    Args:
        student: Changed in place.
        teacher: The teacher.
        rows: A mask of the rows by kind of table.
        start: The start of a student that was cut by activations, in whose basis rows are projected; None projects
            onto the principal directions of the words.

    Returns:
        The kinds that were filled: none where the student's embeddings are wider than its teacher's.
    """
    student_shape = families.shape_of(student.config)
    teacher_shape = families.shape_of(teacher.config)
    # A student whose embeddings are wider than its teacher's starts with random ones.
    if not rows or embedding_mode("auto", student_shape, teacher_shape) == "random":
        return []
    if start is None:
        basis = word_bases(families.base_model(teacher), student_shape, teacher_shape).embedding
    else:
        basis = bases_of(student, teacher, start).embedding
    student_tables = families.embedding_tables(student)
    teacher_tables = families.embedding_tables(teacher)
    filled = []
    with torch.no_grad():
        for kind, mask in rows.items():
            # Only tables of equally many rows have the same row for a token.
            has_same_rows = kind in teacher_tables and len(teacher_tables[kind].module.weight) == len(mask)
            if not has_same_rows:
                continue
            numbers = np.flatnonzero(mask)
            values = teacher_tables[kind].module.weight[numbers]
            # For a narrower student they are projected: [rows, teacher's width] · [teacher's width, student's width].
            if basis is not None:
                values = values.double() @ basis
            weight = student_tables[kind].module.weight
            weight[numbers] = values.to(weight)
            filled.append(kind)
    return filled


def fill_from_teacher(
    student: PreTrainedModel, teacher: PreTrainedModel, names: Iterable[str], terms: Iterable[Term]
) -> list[str]:
    """Give parameters that no stage trained the teacher's values, where shapes allow.

    A parameter of a student's block gets the value from the teacher layer that a term maps to that block.

    Args:
        student: Changed in place.
        teacher: The whole teacher, with all of its layers.
        names: Names of parameters of the student.
        terms: The terms of all stages.

    Returns:
        The names that were filled.
    """
    layers = _mapped_layers(terms)
    student_parameters = dict(student.named_parameters())
    teacher_parameters = dict(families.base_model(teacher).named_parameters())
    # Matches the beginning of the name of a block's parameter, such as `encoder.layer.3`; group 2 is its number.
    block = re.compile(rf"^({re.escape(families.family_of(student.config).blocks)}\.)(\d+)(?=\.)")
    prefix = student.base_model_prefix + "."

    def with_teacher_block(match: re.Match[str]) -> str:
        # Blocks are counted from 0, layers from 1. A block that no term maps gets the number -1, which no block has.
        layer = int(match[2]) + 1
        block_of_teacher = layers.get(layer, 0) - 1
        return f"{match[1]}{block_of_teacher}"

    filled = []
    for name in names:
        # In a student with a head, names begin with that of the Transformer inside, such as `bert.`.
        name_in_teacher = block.sub(with_teacher_block, name.removeprefix(prefix))
        source = teacher_parameters.get(name_in_teacher)
        parameter = student_parameters[name]
        if source is not None and source.shape == parameter.shape:
            with torch.no_grad():
                parameter.copy_(source)
            filled.append(name)
    return filled


def _mapped_layers(terms: Iterable[Term]) -> dict[int, int]:
    """Return the teacher layer that each student layer learns from; where terms differ, the last one decides."""
    layers: dict[int, int] = {}
    for term in terms:
        # A term that compares a student layer with all teacher layers maps it to none of them.
        if len(term.student) != len(term.teacher):
            continue
        for student_key, teacher_key in zip(term.student, term.teacher, strict=True):
            if student_key.layer > 0:
                layers[student_key.layer] = teacher_key.layer
    return layers


def describe_rows(student: PreTrainedModel, kind: str, rows: NDArray[np.bool_], *, from_teacher: bool) -> UnreadRows:
    """Describe for the record the rows of a table that no stage trained: their number, and the first of them.

    Args:
        student: The student.
        kind: Kind of the table.
        rows: A mask of the rows.
        from_teacher: Whether they were given the teacher's values.
    """
    ranges = write_ranges(rows).split(",")
    first = ", ".join(ranges[:_RANGES_IN_RECORD])
    if len(ranges) > _RANGES_IN_RECORD:
        first += ", …"
    return UnreadRows(
        table=f"{families.embedding_tables(student)[kind].name}.weight",
        kind=kind,
        rows=len(rows),
        unread=int(rows.sum()),
        first=first,
        from_teacher=from_teacher,
    )
