"""Facts of a run in words and numbers: its steps, its stages, and how good and fast its models are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from limbeck.report.figures import format_count
from limbeck.report.page.content import NOTHING
from limbeck.report.page.findings import RunFound, StageFound
from limbeck.report.page.model_names import last_part, without_path
from limbeck.report.page.plain_values import entries, entry, mapping, number, text, texts
from limbeck.report.page.quality_figures import Measured
from limbeck.report.search_grid import duration


@dataclass(frozen=True)
class Quality:
    """The figure that a run is judged by.

    Attributes:
        label: What it is.
        latency: What the latency is of.
        teacher: The teacher's value, where it has one.
        student: The student's.
        agreement: Whether it is how far the student agrees with the teacher.
    """

    label: str
    latency: str
    teacher: float | None
    student: float | None
    agreement: bool = False

    @property
    def kept(self) -> float | None:
        """What share of the teacher's value the student has; an agreement with the teacher is none."""
        return self.student / self.teacher if self.student and self.teacher and not self.agreement else None


def quality_of(evaluation: Mapping[str, Any]) -> Quality | None:
    """Choose what a run is judged by: the score of its task, else retrieval, else agreement with the teacher."""
    batch = _first_batch(evaluation)
    length = text(evaluation, "latency", "length")
    of = f"batch {text(batch, 'batch_size')}, {length} tokens, {text(evaluation, 'latency', 'device')}"
    found = (
        (text(evaluation, "task", "metric"), ("task", "teacher"), ("task", "student")),
        ("retrieval MRR@10", ("teacher", "retrieval", "mrr_at_10"), ("student", "retrieval", "mrr_at_10")),
    )
    for label, teacher, student in found:
        if label and number(evaluation, *student) is not None:
            return Quality(f"{label}, held out", of, number(evaluation, *teacher), number(evaluation, *student))
    agreement = number(evaluation, "agreement", "spearman")
    if agreement is None:
        return None
    return Quality("agreement with the teacher (Spearman)", of, 1.0, agreement, agreement=True)


def measured_models(run: RunFound) -> list[Measured]:
    """Return the run's teacher and student as far as both latency and quality are known."""
    evaluation = mapping(run.record, "evaluation")
    quality, batch = quality_of(evaluation), _first_batch(evaluation)
    if quality is None:
        return []
    teacher = last_part(text(run.record, "teacher", "name_or_path")) or "teacher"
    found = (
        (teacher, number(batch, "teacher", "median_ms"), quality.teacher, True),
        (run.title, number(batch, "student", "median_ms"), quality.student, False),
    )
    return [Measured(name, ms, value, role) for name, ms, value, role in found if ms is not None and value is not None]


def run_steps(run: RunFound) -> Iterator[tuple[str, str]]:
    """Go through what was done: teacher, text, stages, student, evaluation."""
    record = run.record
    yield "Teacher", _line(without_path(text(record, "teacher", "name_or_path")), text(record, "teacher", "shape"))
    tokens, documents = number(record, "corpus", "tokens"), number(record, "corpus", "documents")
    counts = [
        f"{format_count(documents)} documents" if documents is not None else "",
        f"{format_count(tokens)} tokens" if tokens is not None else "",
    ]
    sources = list(map(without_path, texts(record, "corpus", "sources")))
    shown = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
    yield "Text", _line(shown, *counts)
    start = entry(record, "student", "initialisation")
    summary = text(start, "summary") if isinstance(start, Mapping) else text(record, "student", "initialisation")
    yield "Start of the student", _line(text(record, "student", "shape"), summary)
    for index, stage in enumerate(run.stages, start=1):
        steps, tokens = _so_far(stage, "steps", "step"), _so_far(stage, "tokens")
        done = [] if stage.record else ["not finished"]
        done += [f"{steps:,.0f} steps{_yet(stage)}"] if steps is not None else []
        done += [f"{format_count(tokens)} tokens"] if tokens is not None else []
        taught_by = text(stage.record, "teacher")
        named = stage.title if stage.title == stage.method else f"{stage.title}: {stage.method}"
        yield f"Stage {index}: {named}", _line(*done, f"taught by {taught_by}" if taught_by else "")
    parameters = number(record, "student", "parameters")
    size = f"{format_count(parameters)} parameters" if parameters is not None else ""
    yield (
        "Student",
        _line(text(record, "student", "shape"), size) if run.status.status == "finished" else "not finished",
    )
    if quality := quality_of(mapping(record, "evaluation")):
        kept = f"{quality.kept:.1%} kept" if quality.kept is not None else ""
        yield "Evaluation", _line(f"{quality.label} {quality.student:.3f}", kept, _speedup(record))


def stage_facts(stage: StageFound) -> tuple[str, ...]:
    """Return method, steps, tokens, time, tokens a second, padding, precision, device and skipped steps.

    Of a stage that is not finished the steps, tokens and time are those of its log.
    """
    padding, seconds = number(stage.record, "padding_share"), _so_far(stage, "seconds")
    return (
        stage.method or NOTHING,
        _count(stage, "steps", "step"),
        _count(stage, "tokens", "tokens"),
        NOTHING if seconds is None else f"{duration(seconds)}{_yet(stage)}",
        _whole(stage, "tokens_per_second"),
        NOTHING if padding is None else f"{padding:.1%}",
        text(stage.record, "precision") or NOTHING,
        text(stage.record, "device") or NOTHING,
        _whole(stage, "skipped_steps"),
    )


def _whole(stage: StageFound, name: str) -> str:
    found = number(stage.record, name)
    return NOTHING if found is None else f"{found:,.0f}"


def _count(stage: StageFound, name: str, logged: str) -> str:
    found = _so_far(stage, name, logged)
    return NOTHING if found is None else f"{found:,.0f}{_yet(stage)}"


def _so_far(stage: StageFound, name: str, logged: str = "") -> float | None:
    return number(stage.record, name) if stage.record else stage.log.reached.get(logged or name)


def _yet(stage: StageFound) -> str:
    return "" if stage.record else " so far"


def _speedup(record: Mapping[str, Any]) -> str:
    found = number(_first_batch(mapping(record, "evaluation")), "speedup")
    return f"{found:.2f}x as fast" if found is not None else ""


def _first_batch(evaluation: Mapping[str, Any]) -> Mapping[str, Any]:
    batches = entries(evaluation, "latency", "batches")
    return batches[0] if batches else {}


def _line(*parts: str) -> str:
    return ", ".join(part.rstrip(".") for part in parts if part) or "not recorded"
