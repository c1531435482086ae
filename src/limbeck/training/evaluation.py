"""Measuring a run's student beside its teacher, as anyone would load them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from limbeck.core.progress import CorpusProgress, Report, no_progress, part_of
from limbeck.corpus import Document, LabelledCorpus, PadCollator, build_corpus, open_stream
from limbeck.errors import LimbeckError, RecipeError
from limbeck.evaluation import compare_models, encode, measure_task
from limbeck.models.loading import load_model
from limbeck.models.locating import is_local, resolve_model
from limbeck.recipe.evaluation import EvaluationSpec
from limbeck.training.development import measure_tasks, measures_tasks
from limbeck.training.rows import AnyCorpus
from limbeck.training.run import Run
from limbeck.training.stage_rows import label_kind


def evaluate_student(run: Run, report: Report = no_progress) -> dict[str, Any]:
    """Measure the saved student, as anyone would load it, beside the teacher, both in float32.

    Args:
        run: With its student saved.
        report: Receives progress.
    """
    spec = run.plan.recipe.evaluation
    teacher: PreTrainedModel = run.teachers.load()
    student = load_model(str(run.student_folder))
    located = resolve_model(run.plan.recipe.teacher.model)
    documents = _held_out_documents(run)
    held_out = None
    if documents is not None:
        held_out = [(document.title, document.body) if document.title else document.text for document in documents]
    pooling, student_pooling = run.plan.vectors_of_both(run.student_folder)
    texts = [text if isinstance(text, str) else "\n".join(text) for text in held_out or ()]
    amounts = choose_amounts(
        spec,
        # The sentence vectors of a classifier are nobody's answer.
        of_vectors=run.plan.head in (None, "masked_lm"),
        # Labelled rows have no titles to find them by.
        retrieves=not (run.corpora and isinstance(run.corpora[0], LabelledCorpus)),
        budget=max(LEAST_SECONDS, BUDGET * (run.record.run.timings.get("training") or 0.0)),
        seconds_of_text=lambda: _seconds_of_text((teacher, student), run, texts),
    )
    clock = TimeLeft(spec, amounts, lambda: _seconds_of_text((teacher, student), run, ["a " * spec.length]))
    of_text = 0.5 if measures_tasks(run.plan) else 1.0
    comparison = compare_models(
        teacher,
        student,
        run.tokenizer,
        held_out,
        pooling=pooling,
        student_pooling=student_pooling,
        asymmetric=bool(run.plan.vector_stages),
        widths=run.plan.trained_widths,
        max_length=spec.length,
        pairs=amounts.pairs,
        retrieval_pairs=clock.choose_pool,
        latency_length=spec.length,
        latency_seconds=spec.latency_seconds if spec.speed else 0.0,
        choose_latency=clock.choose_latency,
        seed=run.plan.recipe.seed,
        teacher_folder=located if is_local(located) else None,
        student_folder=run.student_folder,
        report=part_of(report, 0.0, of_text),
    )
    began = time.perf_counter()
    development = measure_tasks(
        run.plan, run.tokenizer, run.student_folder, run.teachers.load, part_of(report, of_text, 1.0)
    )
    if clock.reduced:
        comparison.settings.reduced = list(clock.reduced)
    if development:
        comparison.seconds["development"] = round(time.perf_counter() - began, 3)
    if clock.reduced or (development and clock.left() < 0):
        comparison.settings.budget_seconds = round(amounts.budget)
    found = {"development": [figures.to_dict() for figures in development]} if development else {}
    return comparison.to_dict() | (found or _score_task(run))


def _held_out_documents(run: Run) -> Sequence[Document] | None:
    """Return the documents that a run holds out, without stages those of its recipe's text; None without text."""
    if run.corpora:
        return run.corpora[0].held_out_documents()
    if (settings := run.plan.text_alone) is None:
        return None
    build: Callable[..., AnyCorpus] = open_stream if settings.streaming else build_corpus
    with CorpusProgress(run.console) as progress:
        return build(settings, run.tokenizer, progress=progress).held_out_documents()


BUDGET, LEAST_SECONDS = 0.1, 30.0
"""What an evaluation by default may take: a share of the training's time, and seconds in any case."""
_PAIRS, _POOL, _BATCHES = 1500, 700, (1, 32)
_FEWEST_PAIRS, _SMALLEST_BATCH, _SAMPLE = 40, 2, 32
_OF_LATENCY, _PASSES = 0.4, 7
"""Share of the budget that is left for latencies, and the passes of each batch that are made anyway."""


@dataclass(frozen=True)
class Amounts:
    """How much is measured of text.

    Args:
        pairs: Sentence pairs for the agreement; 0 leaves it out.
        retrieval_pairs: Pool of the retrieval; 0 leaves it out.
        budget: Seconds that all defaults are to fit into.
        reduced: Keys of the recipe's evaluation whose default did not.
    """

    pairs: int
    retrieval_pairs: int
    budget: float
    reduced: tuple[str, ...] = ()


def choose_amounts(
    spec: EvaluationSpec, *, of_vectors: bool, retrieves: bool, budget: float, seconds_of_text: Callable[[], float]
) -> Amounts:
    """Choose how much is measured: what the recipe says, and else as much of the usual as fits into a budget.

    Amounts are halved until they fit, so that a machine that is a little faster or slower measures the same.

    Args:
        spec: What the recipe says.
        of_vectors: Whether sentence vectors of the models say anything.
        retrieves: Whether the text can be searched.
        budget: Seconds.
        seconds_of_text: Measures how long both models take for a text; called where a default may not fit.
    """
    pairs = (spec.pairs or _PAIRS) if spec.quality and of_vectors else 0
    pool = (spec.retrieval_pairs or _POOL) if spec.quality and of_vectors and retrieves else 0
    if not (pairs or pool) or (spec.pairs is not None and spec.retrieval_pairs is not None):
        return Amounts(pairs, pool, budget)
    seconds, reduced = seconds_of_text(), dict[str, None]()
    while 2 * (pairs + pool) * seconds > (1 - _OF_LATENCY) * budget:
        fewer = pairs // 2 if spec.pairs is None and pairs > _FEWEST_PAIRS else pairs
        smaller = pool // 2 if spec.retrieval_pairs is None and pool > _FEWEST_PAIRS else pool
        if (fewer, smaller) == (pairs, pool):
            break
        reduced |= {"pairs": None} if fewer < pairs else {}
        reduced |= {"retrieval_pairs": None} if smaller < pool else {}
        pairs, pool = fewer, smaller
    return Amounts(pairs, pool, budget, tuple(reduced))


class TimeLeft:
    """The time that is left of an evaluation's budget, which later parts fit into: the clock runs from here on.

    Args:
        spec: What the recipe says; it is measured whatever it costs.
        amounts: What was chosen of text.
        seconds_of_pass: Measures how long both models take for one text of the latency's length.
        clock: In seconds.

    Attributes:
        reduced: Keys of the recipe's evaluation whose default did not fit.
    """

    def __init__(
        self,
        spec: EvaluationSpec,
        amounts: Amounts,
        seconds_of_pass: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._spec, self._amounts, self._seconds_of_pass, self._clock = spec, amounts, seconds_of_pass, clock
        self._began = clock()
        self.reduced = dict.fromkeys(amounts.reduced)

    def left(self) -> float:
        """Return the seconds that are left; below 0 where it took longer."""
        return self._amounts.budget - (self._clock() - self._began)

    def choose_pool(self) -> int:
        """Return the pool of the retrieval, by what the agreement took for a pair."""
        pool, left = self._amounts.retrieval_pairs, self.left()
        a_pair = (self._amounts.budget - left) / max(1, self._amounts.pairs)
        while (
            self._spec.retrieval_pairs is None
            and pool > _FEWEST_PAIRS
            and pool * a_pair > left - _OF_LATENCY * self._amounts.budget
        ):
            pool //= 2
            self.reduced["retrieval_pairs"] = None
        return pool

    def choose_latency(self) -> tuple[tuple[int, ...], float]:
        """Return the batch sizes of the latency, and the seconds for all.

        Raises:
            RecipeError: if no time is left for the smallest.
        """
        spec = self._spec
        # A run's own recipe names every default.
        is_asked = spec.latency_seconds != EvaluationSpec.model_fields["latency_seconds"].default
        if spec.batch_sizes is not None:
            return tuple(spec.batch_sizes), spec.latency_seconds
        one, sizes = _PASSES * self._seconds_of_pass(), tuple[int, ...](_BATCHES)
        left = max(self.left(), spec.latency_seconds) if is_asked else self.left()
        while len(sizes) > 1 and one * sum(sizes) > left:
            sizes = (sizes[0], sizes[1] // 2) if sizes[1] > _SMALLEST_BATCH else sizes[:1]
            self.reduced["batch_sizes"] = None
        if is_asked:
            return sizes, spec.latency_seconds
        if one * sum(sizes) > left:
            raise RecipeError("no time was left for it; to measure it all the same, set evaluation.batch_sizes.")
        # The first of two has half of the seconds; the passes of the second are made anyway.
        return sizes, min(spec.latency_seconds, left, *(2 * (left - one * size) for size in sizes[1:]))


def _seconds_of_text(models: Sequence[PreTrainedModel], run: Run, texts: Sequence[str]) -> float:
    """Measure how long the models together take for one of some texts spread over all; 0 without any."""
    sample = texts[:: max(1, len(texts) // _SAMPLE)][:_SAMPLE]
    if not sample:
        return 0.0
    length, seconds = run.plan.recipe.evaluation.length, 0.0
    for model in models:
        encode(model, run.tokenizer, sample[:2], max_length=length)  # The first pass is slower.
        began = time.perf_counter()
        encode(model, run.tokenizer, sample, max_length=length)
        seconds += time.perf_counter() - began
    return seconds / len(sample)


def _score_task(run: Run) -> dict[str, Any]:
    """Score a task-specific student on its last stage's held-out rows, beside the teacher if that has the head too."""
    scored = [
        (choice, corpus)
        for choice, corpus in zip(run.plan.stages, run.corpora, strict=True)
        if choice.student is None and choice.student_head is not None and choice.pairing.task != "text"
    ]
    if not scored:
        return {}
    choice, corpus = scored[-1]
    teacher = run.teachers.load(choice.teacher, head=choice.teacher_head) if choice.teacher_head is not None else None
    student = load_model(str(run.student_folder), head=choice.student_head)
    collate = PadCollator(run.tokenizer.pad_token_id, side=run.tokenizer.padding_side, labels=label_kind(choice))
    try:
        scores = measure_task(teacher, student, corpus.held_out, collate, choice.pairing.task)
        return {"task": {**scores.to_dict(), "stage": choice.spec.title, "teacher_name": choice.teacher.title}}
    except LimbeckError as error:
        return {"task": {"unavailable": str(error)}}
