"""The whole comparison of a teacher and its student: size, speed and two figures of quality on held-out text.

A figure that cannot be had (too little held-out text, a model without blocks) is None and `unavailable` says
why: a long run never ends without its table for want of one figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from scipy.stats import spearmanr
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.core.progress import Report, no_progress, part_of
from limbeck.core.records import plain
from limbeck.errors import CorpusError, LimbeckError
from limbeck.evaluation.agreement import (
    Agreement,
    Retrieval,
    build_pairs,
    build_retrieval_pairs,
    measure_agreement,
    measure_retrieval,
)
from limbeck.evaluation.costs import (
    Latency,
    ParameterCounts,
    count_parameters,
    measure_latency,
    tensors_megabytes,
    weights_megabytes,
)
from limbeck.evaluation.inference import Encoding, device_of, pair_similarities
from limbeck.models.families import depth
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


T = TypeVar("T")
# Shares of the progress, of the student and of the teacher, which is larger; the rest is the latency.
_AGREEMENT, _RETRIEVAL = ((0.0, 0.1), (0.1, 0.3)), ((0.3, 0.4), (0.4, 0.6))


@dataclass(frozen=True)
class ModelFigures:
    """The figures of one model.

    Attributes:
        parameters: By place.
        megabytes: Of its weights.
        megabytes_of: "files" where a folder was given, else "tensors": as the model is in memory.
        retrieval: Its retrieval figures, or None.
    """

    parameters: ParameterCounts
    megabytes: float
    megabytes_of: str
    retrieval: Retrieval | None


@dataclass(frozen=True)
class Comparison:
    """A teacher beside its student.

    Attributes:
        teacher: The teacher's own figures.
        student: The student's own figures.
        latency: Both models' latency, or None.
        agreement: How the student's similarities agree with the teacher's, or None.
        unavailable: Figure -> why it could not be had; a figure that was not asked for is None without a
            reason.
        settings: Pooling, lengths, sizes, dtype and seed of the request.
        seconds: Measure -> its wall time.
    """

    teacher: ModelFigures
    student: ModelFigures
    latency: Latency | None
    agreement: Agreement | None
    unavailable: dict[str, str]
    settings: dict[str, Any]
    seconds: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, fit for JSON; an undefined number (NaN) is None."""
        found: dict[str, Any] = plain(asdict(self))
        for role in ("teacher", "student"):
            found[role]["parameters"]["total"] = getattr(self, role).parameters.total
        return found


def compare_models(
    teacher: nn.Module,
    student: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    held_out_documents: Sequence[str | tuple[str, str]],
    *,
    pooling: str = "mean",
    max_length: int = 128,
    batch_size: int = 32,
    pairs: int = 1500,
    retrieval_pairs: int = 700,
    latency_batch_sizes: Sequence[int] = (1, 32),
    latency_length: int = 128,
    latency_seconds: float = 12.0,
    dtype: torch.dtype | None = None,
    seed: int = 0,
    teacher_folder: Path | str | None = None,
    student_folder: Path | str | None = None,
    report: Report = no_progress,
) -> Comparison:
    """Measure a teacher and its student side by side.

    Args:
        teacher: The loaded teacher.
        student: The loaded student, on the same device.
        tokenizer: The tokenizer of both.
        held_out_documents: Texts that the student was not trained on, plain or as (title, body) where the
            corpus knows its titles.
        pooling: As in `encode`.
        max_length: Longest text in tokens for the quality figures.
        batch_size: Texts per forward pass for the quality figures.
        pairs: Sentence pairs for the agreement; 0 leaves it out.
        retrieval_pairs: Pool of the retrieval; 0 leaves it out.
        latency_batch_sizes: As in `measure_latency`.
        latency_length: Tokens per text for the latency.
        latency_seconds: For all latency measurements together; 0 leaves them out.
        dtype: Of weights and activations, for quality and latency; None is each model's own for quality, float32 for
            latency.
        seed: Of the choice of pairs, the resampling and the token ids.
        teacher_folder: The folder of the teacher's weights, for its megabytes on disk.
        student_folder: The same for the student.
        report: Receives the progress.

    Returns:
        All figures, those that could not be had as None with a reason.
    """
    held_out = list(held_out_documents)
    unavailable: dict[str, str] = {}
    seconds: dict[str, float] = {}
    encoding: Encoding = {"pooling": pooling, "max_length": max_length, "batch_size": batch_size, "dtype": dtype}

    def agreement() -> Agreement:
        texts_only = [text if isinstance(text, str) else "\n".join(text) for text in held_out]
        chosen = build_pairs(texts_only, pairs, seed=seed)
        texts = [(pair.first, pair.second) for pair in chosen]
        of_student, of_teacher = (
            pair_similarities(model, tokenizer, texts, **encoding | {"report": part_of(report, *where)})
            for model, where in zip((student, teacher), _AGREEMENT, strict=True)
        )
        return measure_agreement(chosen, of_student.numpy(), of_teacher.numpy(), seed=seed)

    def retrieval() -> tuple[Retrieval, Retrieval]:
        chosen = build_retrieval_pairs(held_out, retrieval_pairs, seed=seed)
        of_student, of_teacher = (
            measure_retrieval(model, tokenizer, chosen, **encoding | {"report": part_of(report, *where)})
            for model, where in zip((student, teacher), _RETRIEVAL, strict=True)
        )
        return of_student, of_teacher

    def latency() -> Latency:
        return measure_latency(
            teacher,
            student,
            batch_sizes=latency_batch_sizes,
            length=latency_length,
            seconds=latency_seconds,
            dtype=dtype or torch.float32,
            seed=seed,
            report=part_of(report, _RETRIEVAL[-1][-1], 1.0),
        )

    def attempt(name: str, asked: bool, measure: Callable[[], T]) -> T | None:
        if not asked:
            return None
        start = time.perf_counter()
        try:
            return measure()
        except LimbeckError as error:
            unavailable[name] = str(error)
            return None
        finally:
            seconds[name] = round(time.perf_counter() - start, 3)

    agreed = attempt("agreement", pairs > 0, agreement)
    retrieved = attempt("retrieval", retrieval_pairs > 0, retrieval) or (None, None)
    timed = attempt("latency", latency_seconds > 0, latency)
    return Comparison(
        teacher=_figures(teacher, teacher_folder, retrieved[1]),
        student=_figures(student, student_folder, retrieved[0]),
        latency=timed,
        agreement=agreed,
        unavailable=unavailable,
        settings={
            "pooling": pooling,
            "max_length": max_length,
            "pairs": pairs,
            "retrieval_pairs": retrieval_pairs,
            "held_out_documents": len(held_out),
            "dtype": None if dtype is None else str(dtype).removeprefix("torch."),
            "seed": seed,
        },
        seconds=seconds,
    )


def _figures(model: nn.Module, folder: Path | str | None, retrieval: Retrieval | None) -> ModelFigures:
    """Gather one model's own figures; without weight files its tensors are counted."""
    megabytes, source = tensors_megabytes(model), "tensors"
    if folder is not None:
        with suppress(LimbeckError):  # `megabytes_of` says which it is
            megabytes, source = weights_megabytes(folder), "files"
    return ModelFigures(count_parameters(model), megabytes, source, retrieval)


METRICS = {"classification": "accuracy", "regression": "spearman", "question_answering": "exact_span"}
"""Task to metric: the share of right classes, the rank correlation with the values, or the share of windows whose start
and end are both right."""


@dataclass(frozen=True)
class TaskScores:
    """The scores of both models on the same held-out rows.

    Attributes:
        task: A key of `METRICS`.
        metric: How it is scored, see `METRICS`; 0 to 1, or -1 to 1 for a correlation.
        rows: Number of rows (windows for question answering).
        teacher: The teacher's score.
        student: The student's score.
        agreement: The same metric with the teacher's predictions in place of the labels.

    Scores without a teacher are None, as is a correlation with constant values.
    """

    task: str
    metric: str
    rows: int
    teacher: float | None
    student: float | None
    agreement: float | None


def measure_task(
    teacher: PreTrainedModel | None,
    student: PreTrainedModel,
    rows: Any,
    collate: Callable[[Sequence[Mapping[str, Any]]], dict[str, Tensor]],
    task: str,
    *,
    batch_size: int = 32,
) -> TaskScores:
    """Score teacher and student on labelled rows.

    Args:
        teacher: With the head of the task; None scores the student alone.
        student: With the head of the task.
        rows: Held-out rows with `labels`.
        collate: Makes a batch of them.
        task: A key of `METRICS`.
        batch_size: Rows a forward pass.

    Raises:
        CorpusError: if there are fewer than 2 rows.
    """
    if len(rows) < 2:
        raise CorpusError(f"{len(rows)} rows are held out: too few to score; raise corpus.held_out.")
    batches = [
        collate([rows[index] for index in range(start, min(start + batch_size, len(rows)))])
        for start in range(0, len(rows), batch_size)
    ]
    labels = torch.cat([batch.pop("labels") for batch in batches])
    of_student = _predict(student, batches, task)
    of_teacher = _predict(teacher, batches, task) if teacher is not None else None
    return TaskScores(
        task=task,
        metric=METRICS[task],
        rows=len(rows),
        teacher=None if of_teacher is None else _score(of_teacher, labels, task),
        student=_score(of_student, labels, task),
        agreement=None if of_teacher is None else _score(of_student, of_teacher, task),
    )


@torch.no_grad()
def _predict(model: PreTrainedModel, batches: Sequence[Mapping[str, Tensor]], task: str) -> Tensor:
    """The predicted classes `[rows]`, values `[rows]`, or start and end within the text `[rows, 2]`."""
    key = StreamKey("logits", depth(model.config))
    device, was_training = device_of(model), model.training
    found = []
    with StreamTap(model.eval(), [key]) as tap:
        for batch in batches:
            logits = tap(**{name: tensor.to(device) for name, tensor in batch.items()})[key].float().cpu()
            found.append(logits[:, 0] if task == "regression" else logits.argmax(-1))
    model.train(was_training)
    return torch.cat(found)


def _score(predicted: Tensor, wanted: Tensor, task: str) -> float | None:
    if task == "regression":
        if len(predicted.unique()) == 1 or len(wanted.unique()) == 1:
            return None
        return float(spearmanr(predicted.numpy(), wanted.numpy()).statistic)
    right = predicted == wanted
    return float((right.all(-1) if right.dim() == 2 else right).float().mean())
