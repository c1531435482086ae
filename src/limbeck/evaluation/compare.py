"""The whole comparison of a teacher and its student: size, speed and two figures of quality on held-out text.

A figure that cannot be had (too little held-out text, a model without blocks) is None and `unavailable` says
why: a long run never ends without its table for want of one figure.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core import IGNORED_LABEL, progress, records
from limbeck.core.blocks import counted
from limbeck.core.kinds import KINDS
from limbeck.corpus.labelled import WORD_GAP
from limbeck.corpus.tags import OUTSIDE, marks_entities
from limbeck.errors import CorpusError, LimbeckError
from limbeck.evaluation import agreement, as_is, certainty, costs
from limbeck.evaluation.encoding import PreparedTask
from limbeck.evaluation.metrics import (
    THRESHOLD,
    EntityCounts,
    count_entities,
    given_classes,
    per_word,
    score,
    score_answers,
)
from limbeck.evaluation.tasks import AnswerPrediction, Predictions, Task, TaskRow
from limbeck.models import families, inference, sentences, streams, taps
from limbeck.models.sentences import SentenceHead

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
        chosen = agreement.build_retrieval_pairs(held_out, pool, seed=seed)
        ours, theirs = of_both(chosen, _RETRIEVAL, agreement.ROLES)
        own, other = ours[0].shape[1], theirs[0].shape[1]
        for width in (None, *_narrower(widths, ours, theirs)):
            queries, documents = (inference.cut_vectors(one, width) for one in ours)
            their_queries, their_documents = (inference.cut_vectors(one, width) for one in theirs)
            figures = at(width)
            figures.student = agreement.score_matches(queries, documents)
            figures.teacher = agreement.score_matches(their_queries, their_documents)
            if asymmetric and own == other:
                figures.asymmetric = agreement.score_matches(queries, their_documents)
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
            pooling=sentences.describe_pooling(encoding["pooling"]),
            max_length=encoding["max_length"],
            pairs=pairs,
            retrieval_pairs=pool,
            held_out_documents=len(held_out),
            dtype=None if dtype is None else str(dtype).removeprefix("torch."),
            seed=seed,
        ),
        seconds=seconds,
    )
    if (described := sentences.describe_pooling(poolings[0])) != result.settings.pooling:
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


METRICS = {
    "classification": "accuracy",
    "multi_label": "micro_f1",
    "regression": "spearman",
    "question_answering": "exact_span",
    "token_classification": "accuracy",
    "ranking": "spearman",
}
"""Task to metric: the share of right classes (of texts or words), the F1 of all rows and classes where a row may have
several, the rank correlation with values or scores, or the share of windows whose start and end are both right."""


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
        raise CorpusError(
            f"{counted(len(rows), 'row')} held out: too few to score; give corpus.development, or a larger held_out."
        )
    parts = (range(len(rows))[start : start + batch_size] for start in range(0, len(rows), batch_size))
    batches = [collate([rows[index] for index in part]) for part in parts]
    labels = torch.cat([_labels_of(batch, task) for batch in batches])
    of_student = _predict(student, batches, task)
    of_teacher = _predict(teacher, batches, task) if teacher is not None else None
    return records.TaskFigures(
        task=task,
        metric=METRICS[task],
        rows=len(rows),
        teacher=None if of_teacher is None else _score(of_teacher, labels, task),
        student=_score(of_student, labels, task),
        agreement=None if of_teacher is None else _score(of_student, of_teacher, task),
        only_answer=True if len(of_student.unique(dim=0)) == 1 else None,
    )


def _labels_of(batch: dict[str, Tensor], task: str) -> Tensor:
    """Take the labels out of a batch; of tagged words those of the tokens that have one, which then are `scored`."""
    labels = batch.pop("labels")
    if not KINDS[task].of_words:
        return labels
    batch["scored"] = labels != IGNORED_LABEL
    return labels[batch["scored"]]


@torch.no_grad()
def _predict(model: PreTrainedModel, batches: Sequence[Mapping[str, Tensor]], task: str) -> Tensor:
    """The predicted classes `[rows]` or `[words]`, given ones `[rows, classes]`, values, or ends `[rows, 2]`."""
    key = streams.StreamKey("logits", families.depth(model.config))
    device, was_training = inference.device_of(model), model.training
    found = []
    with taps.StreamTap(model.eval(), [key]) as tap:
        for batch in batches:
            logits = tap(**{name: tensor.to(device) for name, tensor in batch.items()})[key].float().cpu()
            kind = KINDS[task]
            of_rows = logits[:, 0] if kind.has_value else logits > 0 if kind.has_several else logits.argmax(-1)
            found.append(of_rows)
    model.train(was_training)
    return torch.cat(found)


def _score(predicted: Tensor, wanted: Tensor, task: str) -> float | None:
    if KINDS[task].has_value:
        if len(predicted.unique()) == 1 or len(wanted.unique()) == 1 or bool(wanted.isnan().any()):
            return None
        from scipy.stats import spearmanr  # As in `inference`.

        return float(spearmanr(predicted.numpy(), wanted.numpy()).statistic)
    if KINDS[task].has_several:
        ours, theirs = predicted.bool(), wanted.bool()
        given = int(ours.sum()) + int(theirs.sum())
        return 2 * int((ours & theirs).sum()) / given if given else None
    right = predicted == wanted
    return float((right.all(-1) if right.dim() == 2 else right).float().mean())


# Teacher beside student as they are, on development rows.


_EXAMPLES, _MOST_LETTERS = 10, 300


def compare_outputs(
    prepared: PreparedTask, split: str, student: as_is.Outputs, teacher: as_is.Outputs | None = None
) -> records.DevelopmentFigures:
    """Score a student and its teacher on a split by what their heads gave, and find where they disagree.

    Args:
        prepared: The task.
        split: A labelled split of it.
        student: As `as_is.read_outputs` returns it, classes in the task's order.
        teacher: Likewise; None scores the student alone.

    Returns:
        The figures; without the models' names and the stage.
    """
    task, rows = prepared.task, prepared.rows[split]
    ours = as_is.decode(prepared, split, student)
    scores = score(task, split, rows, ours)
    found = records.DevelopmentFigures(task=task.name, kind=task.kind, split=split, rows=len(rows), student={**scores})
    found.intervals = {**certainty.intervals_of(scores, task, rows, ours)}
    found.only_answer = certainty.only_answer(task, ours)
    theirs = None if teacher is None else as_is.decode(prepared, split, teacher)
    if theirs is not None:
        found.teacher = {**score(task, split, rows, theirs)}
    kind = KINDS[task.kind]
    if kind.of_words and marks_entities(task.labels):
        found.by_label = _by_type(rows, ours, theirs, task)
    elif kind.has_classes:
        both = [given for given in (ours, theirs) if given is not None]
        if kind.has_several:
            gold = np.array([row.label for row in rows])
            flags = [given_classes(cast(Any, given), task) for given in both]
            sums = [((one & (gold == 1)).sum(0), one.sum(0), gold.sum(0)) for one in flags]
        else:
            gold = per_word([row.label for row in rows])
            counts = [_confusion(gold, per_word(given), len(task.labels)) for given in both]
            sums = [(counts_of.diagonal(), counts_of.sum(0), counts_of.sum(1)) for counts_of in counts]
            found.labels, found.confusion = list(task.labels), counts[0].tolist()
        shares = [list(map(_f1, *one)) for one in sums]
        found.by_label = [
            records.LabelFigures(
                label=label,
                rows=int(sums[0][2][number]),
                student=shares[0][number],
                teacher=shares[1][number] if teacher is not None else None,
            )
            for number, label in enumerate(task.labels)
        ]
    if teacher is not None and theirs is not None:
        _add_disagreements(found, prepared, split, (ours, theirs), (student, teacher))
    return found


def _by_type(
    rows: Sequence[TaskRow], ours: Predictions, theirs: Predictions | None, task: Task
) -> list[records.LabelFigures]:
    """Return the F1 of each type of entity."""
    both = [count_entities(cast(Any, given), rows, task) for given in (ours, theirs) if given is not None]
    none = EntityCounts(0, 0, 0)
    return [
        records.LabelFigures(
            label=label,
            rows=max(counts.get(label, none).gold for counts in both),
            student=both[0].get(label, none).figures()["f1_entity"],
            teacher=both[1].get(label, none).figures()["f1_entity"] if theirs is not None else None,
        )
        for label in sorted(set().union(*both))
    ]


def _confusion(gold: NDArray[Any], predictions: Any, classes: int) -> NDArray[np.int64]:
    """Count the rows of each class by the class that they are given, `[classes, classes]`."""
    counts = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(counts, (gold, np.asarray(predictions)), 1)
    return counts


def _f1(hits: float, predicted: float, wanted: float) -> float:
    return float(2 * hits / (predicted + wanted)) if predicted + wanted else 0.0


def _add_disagreements(
    found: records.DevelopmentFigures,
    prepared: PreparedTask,
    split: str,
    predictions: tuple[Predictions, Predictions],
    outputs: tuple[as_is.Outputs, as_is.Outputs],
) -> None:
    """Add the rows on which student and teacher give different answers, those that are the furthest apart first."""
    task, rows, kind = prepared.task, prepared.rows[split], KINDS[prepared.task.kind]
    ours, theirs = predictions
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        texts = [[_answer(given.get(row.id), task) for row in rows] for given in (ours, theirs)]
        wanted = [
            replace(row, answers=(text,) if text or task.answerable_only else ())
            for row, text in zip(rows, texts[1], strict=True)
        ]
        scores = score_answers(
            {row.id: AnswerPrediction(text) for row, text in zip(rows, texts[0], strict=True)}, wanted, task
        )
        apart, differ = 1 - scores.f1, scores.exact < 1
        words = [[text or "no answer" for text in given] for given in texts]
    elif kind.has_several:
        probabilities = [np.asarray(given, dtype=np.float64) for given in (ours, theirs)]
        flags = [given_classes(given, task) for given in probabilities]
        apart, differ = np.abs(probabilities[0] - probabilities[1]).max(-1), (flags[0] != flags[1]).any(-1)
        words = [list(map(partial(_several_in_words, task), *both)) for both in zip(flags, probabilities, strict=True)]
    elif kind.of_words:
        apart = np.array([np.mean(np.asarray(one) != np.asarray(two)) for one, two in zip(ours, theirs, strict=True)])
        differ = apart > 0
        words = [
            [_tagged(row, numbers, task) for row, numbers in zip(rows, cast(Any, given), strict=True)]
            for given in predictions
        ]
    elif kind.has_classes:
        shares = [softmax(np.stack(given[0]).astype(np.float64), axis=-1) for given in outputs]
        apart, differ = np.abs(shares[0] - shares[1]).sum(-1) / 2, np.asarray(ours) != np.asarray(theirs)
        words = [
            [f"{task.labels[number]} ({share[number]:.0%})" for number, share in zip(cast(Any, given), of, strict=True)]
            for given, of in zip(predictions, shares, strict=True)
        ]
    elif kind.has_value:
        values = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
        apart, differ = np.abs(values[0] - values[1]), values[0] != values[1]
        words = [[f"{value:.3g}" for value in given] for given in values]
    else:
        return
    if not kind.has_value:  # Values always differ a little.
        found.disagreements = int(differ.sum())
    furthest = [int(index) for index in np.argsort(-apart, kind="stable") if differ[index]]
    found.examples = [
        records.Disagreement(
            text=_cut(" ".join(rows[index].text.split(WORD_GAP)) if kind.of_words else rows[index].text),
            pair=_cut(rows[index].pair or ""),
            label=_label_in_words(rows[index], task),
            student=_cut(words[0][index]),
            teacher=_cut(words[1][index]),
            distance=round(float(apart[index]), 6),
        )
        for index in furthest[:_EXAMPLES]
    ]


def _answer(found: AnswerPrediction | None, task: Task) -> str:
    """The text of an answer; empty where there is none."""
    if found is None or (found.null_odds > THRESHOLD and not task.answerable_only):
        return ""
    return found.text


def _tagged(row: TaskRow, numbers: Sequence[int], task: Task) -> str:
    """The words of a sentence that have a tag other than O, each with it."""
    named = ((word, task.labels[number]) for word, number in zip(row.text.split(WORD_GAP), numbers, strict=True))
    return " ".join(f"{word}/{tag}" for word, tag in named if tag != OUTSIDE) or "no entity"


def _label_in_words(row: TaskRow, task: Task) -> str:
    if row.label is None:
        return _cut(" / ".join(dict.fromkeys(row.answers)) or "no answer")
    if isinstance(row.label, tuple):
        return _cut(_tagged(row, row.label, task)) if KINDS[task.kind].of_words else _several_in_words(task, row.label)
    return task.labels[int(row.label)] if task.labels else f"{row.label:g}"


def _several_in_words(task: Task, flags: Sequence[Any], probabilities: Sequence[float] | None = None) -> str:
    """Name the classes that a row has or is given, with their probabilities where there are any."""
    names = task.labels if probabilities is None else map("{} ({:.0%})".format, task.labels, probabilities)
    return ", ".join(name for name, flag in zip(names, flags, strict=True) if flag) or "no class"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"
