"""The whole comparison of a teacher and its student: size, speed and two figures of quality on held-out text.

A figure that cannot be had (too little held-out text, a model without blocks) is None and `unavailable` says
why: a long run never ends without its table for want of one figure.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar, Unpack

import torch
from scipy.stats import spearmanr
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core import progress, records
from limbeck.errors import CorpusError, LimbeckError
from limbeck.evaluation import agreement, costs, inference
from limbeck.models import families, streams, taps

T = TypeVar("T")
# Shares of the progress, of the student and of the teacher, which is larger; the rest is the latency.
_AGREEMENT, _RETRIEVAL = ((0.0, 0.1), (0.1, 0.3)), ((0.3, 0.4), (0.4, 0.6))


def compare_models(
    teacher: nn.Module,
    student: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    held_out_documents: Sequence[str | tuple[str, str]],
    *,
    pairs: int = 1500,
    retrieval_pairs: int = 700,
    latency_batch_sizes: Sequence[int] = (1, 32),
    latency_length: int = 128,
    latency_seconds: float = 12.0,
    seed: int = 0,
    teacher_folder: Path | str | None = None,
    student_folder: Path | str | None = None,
    **encoding: Unpack[inference.Encoding],
) -> records.RunEvaluation:
    """Measure a teacher and its student side by side.

    Args:
        teacher: The loaded teacher.
        student: The loaded student, on the same device.
        tokenizer: The tokenizer of both.
        held_out_documents: Texts that the student was not trained on, plain or as (title, body) where the
            corpus knows its titles.
        pairs: Sentence pairs for the agreement; 0 leaves it out.
        retrieval_pairs: Pool of the retrieval; 0 leaves it out.
        latency_batch_sizes: As in `measure_latency`.
        latency_length: Tokens per text for the latency.
        latency_seconds: For all latency measurements together; 0 leaves them out.
        seed: Of the choice of pairs, the resampling and the token ids.
        teacher_folder: The folder of the teacher's weights, for its megabytes on disk.
        student_folder: The same for the student.
        encoding: As in `encode`, for the quality figures; `max_length` is 128 by default. `dtype` is the latency's too:
            None is each model's own for quality, float32 for latency. `report` receives the progress of all.

    Returns:
        All figures, those that could not be had as None with a reason.
    """
    held_out = list(held_out_documents)
    unavailable: dict[str, str] = {}
    seconds: dict[str, records.Number | None] = {}
    encoding = {"pooling": "mean", "max_length": 128, "report": progress.no_progress, **encoding}
    dtype, report = encoding.get("dtype"), encoding["report"]

    def of_both(measure: Callable[..., T], texts: Sequence[Any], shares: Sequence[tuple[float, float]]) -> list[T]:
        return [
            measure(model, tokenizer, texts, **encoding | {"report": progress.part_of(report, *share)})
            for model, share in zip((student, teacher), shares, strict=True)
        ]

    def agree() -> records.Agreement:
        texts_only = [text if isinstance(text, str) else "\n".join(text) for text in held_out]
        chosen = agreement.build_pairs(texts_only, pairs, seed=seed)
        both = of_both(inference.pair_similarities, [(pair.first, pair.second) for pair in chosen], _AGREEMENT)
        return agreement.measure_agreement(chosen, both[0].numpy(), both[1].numpy(), seed=seed)

    def retrieve() -> list[records.Retrieval]:
        chosen = agreement.build_retrieval_pairs(held_out, retrieval_pairs, seed=seed)
        return of_both(agreement.measure_retrieval, chosen, _RETRIEVAL)

    def time_both() -> records.Latency:
        return costs.measure_latency(
            teacher,
            student,
            batch_sizes=latency_batch_sizes,
            length=latency_length,
            seconds=latency_seconds,
            dtype=dtype or torch.float32,
            seed=seed,
            report=progress.part_of(report, _RETRIEVAL[-1][-1], 1.0),
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

    agreed = attempt("agreement", pairs > 0, agree)
    of_student, of_teacher = attempt("retrieval", retrieval_pairs > 0, retrieve) or (None, None)
    timed = attempt("latency", latency_seconds > 0, time_both)
    return records.RunEvaluation(
        teacher=_figures(teacher, teacher_folder, of_teacher),
        student=_figures(student, student_folder, of_student),
        latency=timed,
        agreement=agreed,
        unavailable=unavailable,
        settings=records.MeasuredWith(
            pooling=encoding["pooling"],
            max_length=encoding["max_length"],
            pairs=pairs,
            retrieval_pairs=retrieval_pairs,
            held_out_documents=len(held_out),
            dtype=None if dtype is None else str(dtype).removeprefix("torch."),
            seed=seed,
        ),
        seconds=seconds,
    )


def _figures(model: nn.Module, folder: Path | str | None, retrieval: records.Retrieval | None) -> records.ModelFigures:
    counts, (megabytes, source) = costs.count_parameters(model), costs.model_megabytes(model, folder)
    parameters = records.Parameters(**asdict(counts), total=counts.total)
    return records.ModelFigures(parameters=parameters, megabytes=megabytes, megabytes_of=source, retrieval=retrieval)


METRICS = {"classification": "accuracy", "regression": "spearman", "question_answering": "exact_span"}
"""Task to metric: the share of right classes, the rank correlation with the values, or the share of windows whose start
and end are both right."""


def measure_task(
    teacher: PreTrainedModel | None,
    student: PreTrainedModel,
    rows: Any,
    collate: Callable[[Sequence[Mapping[str, Any]]], dict[str, Tensor]],
    task: str,
    *,
    batch_size: int = 32,
) -> records.TaskFigures:
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
    parts = (range(len(rows))[start : start + batch_size] for start in range(0, len(rows), batch_size))
    batches = [collate([rows[index] for index in part]) for part in parts]
    labels = torch.cat([batch.pop("labels") for batch in batches])
    of_student = _predict(student, batches, task)
    of_teacher = _predict(teacher, batches, task) if teacher is not None else None
    return records.TaskFigures(
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
    key = streams.StreamKey("logits", families.depth(model.config))
    device, was_training = inference.device_of(model), model.training
    found = []
    with taps.StreamTap(model.eval(), [key]) as tap:
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
