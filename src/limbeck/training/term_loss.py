"""`loss_of_term`: the loss of one term on a batch.

A *term* compares streams of student and teacher by an *objective*. Before the objective is called, the term's streams
are prepared (learned maps, transforms of the teacher's streams), and the rows and labels that count are chosen.

*Logits* are scores over a vocabulary or over classes. Those over a vocabulary are large, so they may be *unmade*: in
their place a model gives the hidden vectors below its output layer, and that layer's weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from limbeck.core import IGNORED_LABEL
from limbeck.corpus.batches.batch import Batch
from limbeck.methods.term import Term
from limbeck.methods.transforms import Course
from limbeck.models.packed_rows import rows_of_tokens
from limbeck.models.streams import StreamKey, Streams
from limbeck.objectives import OBJECTIVES, LossTerm
from limbeck.training.gathering import gather_rows, sum_over_ranks
from limbeck.training.layer_weights import LayerWeights
from limbeck.training.learned_maps import map_arguments


@dataclass(frozen=True)
class BatchStreams:
    """The streams of both models on a batch.

    Args:
        batch: The batch, with its labels and groups.
        student: The student's streams.
        teacher: The teacher's streams.
        is_token: Bool `[B, L]`, true for real tokens and false for padding.
        labelled_only: Whether logits were computed for labelled tokens alone, as rows of these tokens.
    """

    batch: Batch
    student: Streams
    teacher: Streams
    is_token: Tensor
    labelled_only: bool


def loss_of_term(
    term: Term,
    streams: BatchStreams,
    learned_map: nn.Module | None,
    layer_weights: LayerWeights | None,
    course: Course,
    *,
    is_training: bool,
) -> LossTerm:
    """Compute the loss of a term on a batch.

    Args:
        term: The term.
        streams: The streams of both models.
        learned_map: The learned map of the term, if it has one.
        layer_weights: Weights that terms over all layers share, if there are such terms.
        course: The progress of the training, by which some transforms of the teacher's streams change.
        is_training: Whether the rows are trained on. Rows of all processes are then gathered for objectives that
            compare all samples; each process measures held-out rows in whole batches of its own.
    """
    labels = _labels_of(term, streams)
    # Logits over a vocabulary may be left unmade, since they are large.
    has_logits = all(key in streams.student for key in term.student)
    if term.reads_logits and not has_logits:
        return _loss_from_hidden(term, streams, labels)

    objective = OBJECTIVES[term.objective]
    is_counted = _counted_rows(term, streams, labels)
    student = streams.student
    teacher = streams.teacher
    packed = _packed_streams(term, streams)
    if packed is not None:
        # Rows of a packed batch are real tokens, so all of them count and no mask is needed.
        student, teacher = packed
        is_counted = None

    mapped_student = _reader_of_mapped_stream(term, student, learned_map)
    student_tensors = term.prepare_student(student, learned_map)
    teacher_tensors = term.prepare_teacher(teacher, mapped_student, course)
    if objective.gathers_rows and is_training:
        student_tensors = [gather_rows(tensor) for tensor in student_tensors]
        teacher_tensors = [gather_rows(tensor) for tensor in teacher_tensors]
        if labels is not None and objective.takes_labels:
            labels = gather_rows(labels)

    # Everything that an objective may take by keyword. `objective.arguments` picks the keywords of this one.
    keywords: dict[str, Any] = {"valid": is_counted, "groups": streams.batch.groups}
    if term.map_in_objective:
        keywords |= map_arguments(learned_map)
    if layer_weights is not None:
        keywords["student_weights"] = layer_weights.student
        keywords["teacher_weights"] = layer_weights.teacher
        # With `across`, the objective sums over the rows of all processes.
        keywords["across"] = sum_over_ranks if is_training else None
    options = {**term.options, **objective.arguments(keywords)}
    return objective.call(student_tensors, teacher_tensors, labels, **options)


def _labels_of(term: Term, streams: BatchStreams) -> Tensor | None:
    """Return the labels, `[B, L]`; those of the labelled tokens, `[T]`, where logits are rows of these tokens."""
    labels = streams.batch.labels
    if labels is not None and streams.labelled_only and term.rows == "label":
        return labels[labels != IGNORED_LABEL]
    return labels


def _counted_rows(term: Term, streams: BatchStreams, labels: Tensor | None) -> Tensor | None:
    """Return the mask of the rows that count in the loss, bool `[B, L]`; None where all rows do."""
    # An objective on rows of logits leaves it to the term which rows count. All other objectives count real tokens.
    if OBJECTIVES[term.objective].unit != "row" or term.rows == "token":
        return streams.is_token
    # There is one row a sample, or the rows are labelled tokens already.
    if term.rows == "sample" or streams.labelled_only:
        return None
    if labels is None:
        return streams.is_token
    return labels != IGNORED_LABEL


def _packed_streams(term: Term, streams: BatchStreams) -> tuple[Streams, Streams] | None:
    """Return both models' streams as rows of real tokens, for a term that compares token by token.

    Returns:
        Streams of the student and of the teacher, `[1, T, width]` each. None where the batch did not run packed, or
        where the term needs `[B, L, width]`.
    """
    if not OBJECTIVES[term.objective].by_token or term.transform is not None:
        return None
    rows = rows_of_tokens(streams.student, streams.teacher)
    if rows is None:
        return None
    student, teacher = rows
    # A stream of whole texts has no rows of tokens.
    has_all = student.keys() >= set(term.student) and teacher.keys() >= set(term.teacher)
    return rows if has_all else None


def _reader_of_mapped_stream(term: Term, student: Streams, learned_map: nn.Module | None) -> Callable[[], Tensor]:
    """Return a function that gives the student's first stream in the teacher's width.

    Only some transforms of the teacher's streams need it, and the product with a learned map takes time.
    """

    def read() -> Tensor:
        stream = student[term.student[0]]
        if learned_map is None:
            return stream.detach()
        mapped: Tensor = learned_map(stream.float())
        return mapped

    return read


def _loss_from_hidden(term: Term, streams: BatchStreams, labels: Tensor | None) -> LossTerm:
    """Compute a term on logits without making them: from the hidden vectors and the output layers of the models."""
    objective = OBJECTIVES[term.objective]
    assert objective.from_hidden is not None
    options = dict(term.options)

    # The objective takes the student's hidden vectors and output weight, then the teacher's, then the labels.
    [student_key] = term.student
    hidden = streams.student[StreamKey("pre_logits", student_key.layer)]
    tensors = [hidden, streams.student[StreamKey("output_weight", student_key.layer)]]
    options["student_bias"] = streams.student.get(StreamKey("output_bias", student_key.layer))
    # A term on hard labels has no stream of a teacher, and any other term has one.
    if term.teacher:
        [teacher_key] = term.teacher
        tensors.append(streams.teacher[StreamKey("pre_logits", teacher_key.layer)])
        tensors.append(streams.teacher[StreamKey("output_weight", teacher_key.layer)])
        options["teacher_bias"] = streams.teacher.get(StreamKey("output_bias", teacher_key.layer))

    is_counted = _counted_rows(term, streams, labels)
    # In a packed batch hidden vectors are `[T, width]`, of the T real tokens alone, so padding has to go from labels
    # and mask too. Where only labelled tokens were scored, labels and mask are of these tokens already.
    is_packed = hidden.dim() == 2
    has_padding_beside = is_packed and not streams.labelled_only
    if has_padding_beside and labels is not None:
        labels = labels[streams.is_token]
    if has_padding_beside and is_counted is not None:
        is_counted = is_counted[streams.is_token]
    if objective.takes_labels and labels is not None:
        tensors.append(labels)
    options |= objective.arguments({"valid": is_counted})
    return objective.from_hidden(*tensors, **options)
