"""The whole comparison of a teacher and its student: size, speed and two figures of quality on held-out text.

A figure that cannot be had (too little held-out text, a model without blocks) is None and `unavailable` says
why: a long run never ends without its table for want of one figure.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar, Unpack

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from limbeck.core import progress, records
from limbeck.errors import LimbeckError
from limbeck.evaluation import agreement, costs, retrieval
from limbeck.models import inference, sentence_heads
from limbeck.models.sentence_heads import SentenceHead

T = TypeVar("T")
# Shares of the progress, of the student and of the teacher, which is larger; the rest is the latency.
_AGREEMENT, _RETRIEVAL = ((0.0, 0.1), (0.1, 0.3)), ((0.3, 0.4), (0.4, 0.6))


def compare_models(
    teacher: nn.Module,
    student: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    held_out_documents: Sequence[str | tuple[str, str]] | None,
    *,
    pairs: int = 1500,
    retrieval_pairs: int | Callable[[], int] = 700,
    latency_batch_sizes: Sequence[int] = (1, 32),
    latency_length: int = 128,
    latency_seconds: float = 12.0,
    choose_latency: Callable[[], tuple[Sequence[int], float]] | None = None,
    seed: int = 0,
    teacher_folder: Path | str | None = None,
    student_folder: Path | str | None = None,
    student_pooling: str | SentenceHead | None = None,
    asymmetric: bool = False,
    widths: Sequence[int] = (),
    **encoding: Unpack[inference.Encoding],
) -> records.RunEvaluation:
    """Measure a teacher and its student side by side.

    Args:
        teacher: The loaded teacher.
        student: The loaded student, on the same device.
        tokenizer: The tokenizer of both.
        held_out_documents: Texts that the student was not trained on, plain or as (title, body) where the
            corpus knows its titles; None of a run without text, which has neither agreement nor retrieval.
        pairs: Sentence pairs for the agreement; 0 leaves it out.
        retrieval_pairs: Pool of the retrieval, or what chooses it once the agreement is measured; 0 leaves it out.
        latency_batch_sizes: As in `measure_latency`.
        latency_length: Tokens per text for the latency.
        latency_seconds: For all latency measurements together; 0 leaves them out.
        choose_latency: Chooses these batch sizes and seconds once the quality is measured.
        seed: Of the choice of pairs, the resampling and the token ids.
        teacher_folder: The folder of the teacher's weights, for its megabytes on disk.
        student_folder: The same for the student.
        student_pooling: How the student makes sentence vectors; None: as the teacher, by `pooling`.
        asymmetric: Measure too how the student's summaries find the teacher's bodies, where widths are equal.
        widths: Measure the same of vectors cut to these; a model's width and more are skipped.
        encoding: As in `encode`, for the quality figures; `max_length` is 128 by default. `dtype` is the latency's too:
            None is each model's own for quality, float32 for latency. `report` receives the progress of all.

    Returns:
        All figures, those that could not be had as None with a reason.
    """
    held_out = list(held_out_documents or ())
    unavailable: dict[str, str] = {}
    seconds: dict[str, records.Number | None] = {}
    encoding = {"pooling": "mean", "max_length": 128, "report": progress.no_progress, **encoding}
    dtype, report = encoding.get("dtype"), encoding["report"]
    poolings = encoding["pooling"] if student_pooling is None else student_pooling, encoding["pooling"]
    of_vectors: dict[int | None, records.CutVectors] = {}

    def at(width: int | None) -> records.CutVectors:
        return of_vectors.setdefault(width, records.CutVectors() if width is None else records.CutVectors(width=width))

    def of_both(
        texts: Sequence[tuple[str, str]], shares: Sequence[tuple[float, float]], roles: tuple[str, str] | None = None
    ) -> list[tuple[Tensor, Tensor]]:
        found, both = [], ([a for a, _ in texts], [b for _, b in texts])
        for model, pooling, share in zip((student, teacher), poolings, shares, strict=True):
            asked = encoding | {"pooling": pooling, "report": progress.part_of(report, *share)}
            found.append(inference.encode_both(model, tokenizer, *both, roles, **asked))
        return found

    def agree() -> None:
        texts_only = [text if isinstance(text, str) else "\n".join(text) for text in held_out]
        chosen = agreement.build_pairs(texts_only, pairs, seed=seed)
        ours, theirs = of_both([(pair.first, pair.second) for pair in chosen], _AGREEMENT)
        of_teacher = (theirs[0] * theirs[1]).sum(-1).numpy()
        for width in (None, *_narrower(widths, ours, theirs)):
            left, right = (inference.cut_vectors(one, width) for one in ours)
            of_student = (left * right).sum(-1).numpy()
            at(width).agreement = found = agreement.measure_agreement(chosen, of_student, of_teacher, seed=seed)
            if width is None:
                found.examples = agreement.furthest_pairs(chosen, of_student, of_teacher)

    def retrieve() -> None:
        chosen = retrieval.build_retrieval_pairs(held_out, pool, seed=seed)
        ours, theirs = of_both(chosen, _RETRIEVAL, retrieval.ROLES)
        own, other = ours[0].shape[1], theirs[0].shape[1]
        for width in (None, *_narrower(widths, ours, theirs)):
            queries, documents = (inference.cut_vectors(one, width) for one in ours)
            their_queries, their_documents = (inference.cut_vectors(one, width) for one in theirs)
            figures = at(width)
            figures.student = retrieval.score_matches(queries, documents)
            figures.teacher = retrieval.score_matches(their_queries, their_documents)
            if asymmetric and own == other:
                figures.asymmetric = retrieval.score_matches(queries, their_documents)
        if asymmetric and own != other:
            unavailable["asymmetric retrieval"] = (
                f"The student's vectors have {own} components and the teacher's have {other}; aligned_embedding "
                "makes them equal."
            )

    def time_both() -> records.Latency:
        sizes, time_for_all = (latency_batch_sizes, latency_seconds) if choose_latency is None else choose_latency()
        return costs.measure_latency(
            teacher,
            student,
            batch_sizes=sizes,
            length=latency_length,
            seconds=time_for_all,
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

    attempt("agreement", pairs > 0 and held_out_documents is not None, agree)
    pool = retrieval_pairs() if callable(retrieval_pairs) else retrieval_pairs
    attempt("retrieval", pool > 0 and held_out_documents is not None, retrieve)
    timed = attempt("latency", latency_seconds > 0, time_both)
    whole = at(None)
    result = records.RunEvaluation(
        teacher=_figures(teacher, teacher_folder, whole.teacher),
        student=_figures(student, student_folder, whole.student),
        latency=timed,
        agreement=whole.agreement,
        unavailable=unavailable,
        settings=records.MeasuredWith(
            pooling=sentence_heads.describe_pooling(encoding["pooling"]),
            max_length=encoding["max_length"],
            pairs=pairs,
            retrieval_pairs=pool,
            held_out_documents=len(held_out),
            dtype=None if dtype is None else str(dtype).removeprefix("torch."),
            seed=seed,
        ),
        seconds=seconds,
    )
    if (described := sentence_heads.describe_pooling(poolings[0])) != result.settings.pooling:
        result.settings.student_pooling = described
    if whole.asymmetric is not None:
        result.asymmetric = whole.asymmetric
    if cut := [figures for width, figures in of_vectors.items() if width is not None]:
        result.cut = cut
    return result


def _narrower(widths: Sequence[int], *vectors: Sequence[Tensor]) -> list[int]:
    """Return the widths to which the vectors of both models can be cut, the widest first."""
    narrowest = min(one[0].shape[1] for one in vectors)
    return sorted({width for width in widths if width < narrowest}, reverse=True)


def _figures(model: nn.Module, folder: Path | str | None, retrieval: records.Retrieval | None) -> records.ModelFigures:
    counts, (megabytes, source) = costs.count_parameters(model), costs.model_megabytes(model, folder)
    parameters = records.Parameters(**asdict(counts), total=counts.total)
    return records.ModelFigures(parameters=parameters, megabytes=megabytes, megabytes_of=source, retrieval=retrieval)
