"""Parameters and rows of tables that no stage trained, and the values that they get."""

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


def never_trained(stages: Sequence[Stage]) -> tuple[list[str], list[str]]:
    """Find the parameters that no stage trained.

    Args:
        stages: The stages' records: `untrained` names what no term reached, `frozen` what the recipe froze.

    Returns:
        Those that some stage left out without being asked to, and those that were only ever frozen; in order.
    """
    if not stages:
        return [], []
    left_out: list[str] = []
    frozen: list[str] = []
    for name in (*stages[0].frozen, *stages[0].untrained):
        if all(name in stage.frozen for stage in stages):
            frozen.append(name)
        elif all(name in stage.frozen or name in stage.untrained for stage in stages):
            left_out.append(name)
    return left_out, frozen


def never_read(stages: Sequence[Stage], student: PreTrainedModel) -> dict[str, NDArray[np.bool_]]:
    """Find the rows of embedding tables that no stage trained, since no batch read them.

    Args:
        stages: The stages' records; `unread` names the rows.
        student: The student that they trained.

    Returns:
        By kind of table which rows, where there are any; a table that no stage trained at all is left out, and so is
        one that a stage says nothing of.
    """
    left_out, frozen = never_trained(stages)
    rows_by_kind: dict[str, NDArray[np.bool_]] = {}
    for kind, table in families.embedding_tables(student).items():
        name = f"{table.name}.weight"
        ranges_of_stages = [stage.unread.get(name, "") for stage in stages]
        if not ranges_of_stages or not all(ranges_of_stages) or name in left_out or name in frozen:
            continue
        rows = np.ones(table.module.num_embeddings, dtype=np.bool_)
        for ranges in ranges_of_stages:
            rows &= read_ranges(ranges, len(rows))
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
        rows: By kind of table which rows.
        start: Of a student that was cut by activations; None goes by the words.

    Returns:
        The kinds that were filled: none where the student's embeddings are wider than its teacher's.
    """
    shapes = families.shape_of(student.config), families.shape_of(teacher.config)
    if not rows or embedding_mode("auto", *shapes) == "random":
        return []
    if start is None:
        basis = word_bases(families.base_model(teacher), *shapes).embedding
    else:
        basis = bases_of(student, teacher, start).embedding
    student_tables = families.embedding_tables(student)
    teacher_tables = families.embedding_tables(teacher)
    filled = []
    with torch.no_grad():
        for kind, mask in rows.items():
            if kind not in teacher_tables or len(teacher_tables[kind].module.weight) != len(mask):
                continue
            numbers = np.flatnonzero(mask)
            values = teacher_tables[kind].module.weight[numbers]
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
        teacher: The whole teacher, not a truncated one.
        names: Parameters of the student.
        terms: The terms of all stages.

    Returns:
        The names that were filled.
    """
    teacher_layer: dict[int, int] = {}
    for term in terms:
        if len(term.student) != len(term.teacher):
            continue
        for student_key, teacher_key in zip(term.student, term.teacher, strict=True):
            if student_key.layer > 0:
                teacher_layer[student_key.layer] = teacher_key.layer

    student_parameters = dict(student.named_parameters())
    teacher_parameters = dict(families.base_model(teacher).named_parameters())
    block = re.compile(rf"^({re.escape(families.family_of(student.config).blocks)}\.)(\d+)(?=\.)")
    prefix = student.base_model_prefix + "."

    def with_teacher_block(match: re.Match[str]) -> str:
        # Blocks are counted from 0, layers from 1. A block that no term maps gets the number -1, which no block has.
        layer = int(match[2]) + 1
        return f"{match[1]}{teacher_layer.get(layer, 0) - 1}"

    filled = []
    for name in names:
        # A student with a head has its Transformer one level down.
        source = teacher_parameters.get(block.sub(with_teacher_block, name.removeprefix(prefix)))
        parameter = student_parameters[name]
        if source is not None and source.shape == parameter.shape:
            with torch.no_grad():
                parameter.copy_(source)
            filled.append(name)
    return filled


def describe_rows(student: PreTrainedModel, kind: str, rows: NDArray[np.bool_], from_teacher: bool) -> UnreadRows:
    """Describe rows for the record: their number, and the first of them."""
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
