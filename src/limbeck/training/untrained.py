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

_NAMED = 20  # Ranges of rows in the record of a run.


def never_trained(stages: Sequence[Stage]) -> tuple[list[str], list[str]]:
    """Find the parameters that no stage trained.

    Args:
        stages: The stages' records: `untrained` names what no term reached, `frozen` what the recipe froze.

    Returns:
        Those that some stage left out without being asked to, and those that were only ever frozen; in order.
    """
    if not stages:
        return [], []
    left_out = [{*stage.untrained, *stage.frozen} for stage in stages]
    names = [*stages[0].frozen, *stages[0].untrained]
    never = [name for name in names if all(name in stage for stage in left_out)]
    frozen = {name for name in never if all(name in stage.frozen for stage in stages)}
    return [name for name in never if name not in frozen], [name for name in never if name in frozen]


def never_read(stages: Sequence[Stage], student: PreTrainedModel) -> dict[str, NDArray[np.bool_]]:
    """Find the rows of embedding tables that no stage trained, since no batch read them.

    Args:
        stages: The stages' records; `unread` names the rows.
        student: The student that they trained.

    Returns:
        By kind of table which rows, where there are any; a table that no stage trained at all is left out, and so is
        one that a stage says nothing of.
    """
    left_out = set().union(*never_trained(stages))
    found = {}
    for kind, table in families.embedding_tables(student).items():
        name = f"{table.name}.weight"
        said = [stage.unread.get(name, "") for stage in stages]
        if said and all(said) and name not in left_out:
            found[kind] = np.logical_and.reduce([read_ranges(text, table.module.num_embeddings) for text in said])
    return {kind: rows for kind, rows in found.items() if rows.any()}


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
    own, theirs = families.embedding_tables(student), families.embedding_tables(teacher)
    filled = [kind for kind in rows if kind in theirs and len(theirs[kind].module.weight) == len(rows[kind])]
    with torch.no_grad():
        for kind in filled:
            weight, chosen = own[kind].module.weight, np.flatnonzero(rows[kind])
            values = theirs[kind].module.weight[chosen]
            weight[chosen] = (values if basis is None else values.double() @ basis).to(weight)
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
    teacher_layer = {
        key.layer: other.layer
        for term in terms
        if len(term.student) == len(term.teacher)
        for key, other in zip(term.student, term.teacher, strict=True)
        if key.layer > 0
    }
    own, theirs = dict(student.named_parameters()), dict(families.base_model(teacher).named_parameters())
    block = re.compile(rf"^({re.escape(families.family_of(student.config).blocks)}\.)(\d+)(?=\.)")
    prefix = student.base_model_prefix + "."

    def mapped(match: re.Match[str]) -> str:
        # Of a block that no term maps the number is -1, which no layer has.
        return f"{match[1]}{teacher_layer.get(int(match[2]) + 1, 0) - 1}"

    filled = []
    for name in names:
        # A student with a head has its Transformer one level down.
        source = theirs.get(block.sub(mapped, name.removeprefix(prefix)))
        if source is not None and source.shape == own[name].shape:
            with torch.no_grad():
                own[name].copy_(source)
            filled.append(name)
    return filled


def _describe_rows(student: PreTrainedModel, kind: str, rows: NDArray[np.bool_], from_teacher: bool) -> UnreadRows:
    """Describe rows for the record: their number, and the first of them."""
    named = write_ranges(rows).split(",")
    return UnreadRows(
        table=f"{families.embedding_tables(student)[kind].name}.weight",
        kind=kind,
        rows=len(rows),
        unread=int(rows.sum()),
        first=", ".join(named[:_NAMED]) + (", …" if len(named) > _NAMED else ""),
        from_teacher=from_teacher,
    )
