"""What a reader of a run's report must not miss."""

from __future__ import annotations

from collections.abc import Iterator

from limbeck.report.page.findings import RunFound, StageFound
from limbeck.report.page.plain_values import mapping, number, text, texts

_SHOWN = 6
_HOW = {
    "running": "The run is still going on{place}.",
    "dead": "The process of the run is gone without a word{place}; `limbeck distill --resume` goes on with it.",
    "interrupted": "The run was stopped{place}; `limbeck distill --resume` goes on with it.",
    "failed": "The run failed{place}.",
}


def run_warnings(run: RunFound) -> list[str]:
    """Say what is missing, failed or damaged, which parameters nothing trained, and which steps were skipped."""
    return [*run.problems, *_standing(run), *_untrained(run), *_stages(run), *_text(run)]


def _standing(run: RunFound) -> Iterator[str]:
    status = run.status
    if not run.record:
        return
    if status.status in _HOW:
        step = f", step {status.step:,} of {status.steps:,}" if status.step is not None and status.steps else ""
        at = status.stage or status.activity
        place = f" (at {at}{step})" if at else ""
        problem = text(run.record, "problem")
        yield _HOW[status.status].format(place=place) + (f" {problem}" if problem else "")
    missing = [stage.title for stage in run.stages if not stage.record]
    if missing:
        yield f"Not finished: {', '.join(missing)}. What is said of them is from the recipe and their logs."
    if status.status == "finished" and not (run.folder / "student").is_dir():
        yield "The run is finished, but its student is not in its folder."


def _untrained(run: RunFound) -> Iterator[str]:
    untrained = mapping(run.record, "untrained")
    names = texts(untrained, "names")
    if not names:
        return
    taken = len(set(texts(untrained, "from_teacher")) & set(names))
    started = "the values that they were started with"
    if taken == len(names):
        held = "they hold the teacher's values"
    elif taken:
        verb = "holds" if taken == 1 else "hold"
        held = f"{taken} {verb} the teacher's values, the others {started}"
    else:
        held = f"they hold {started}"
    groups = list(dict.fromkeys(".".join(name.split(".")[:-2]) or name for name in names))
    more = f" and {len(groups) - _SHOWN} more" if len(groups) > _SHOWN else ""
    yield (
        f"{len(names)} tensors of the student were trained by no stage ({', '.join(groups[:_SHOWN])}{more}): {held}."
    )


def _stages(run: RunFound) -> Iterator[str]:
    for stage in run.stages:
        yield from _of_stage(stage)


def _of_stage(stage: StageFound) -> Iterator[str]:
    if skipped := number(stage.record, "skipped_steps"):
        yield f"Stage '{stage.title}' skipped {skipped:,.0f} steps whose loss or gradient went wrong."
    if rows := number(stage.record, "rows_of_a_piece"):
        yield f"Stage '{stage.title}' ran out of memory and cut its batches into pieces of {rows:,.0f} rows."


def _text(run: RunFound) -> Iterator[str]:
    counts = mapping(run.record, "corpus", "report", "counts")
    passed = [f"{name} ({count:,})" for name, count in counts.items() if isinstance(count, int) and count]
    if passed:
        yield f"Text that was passed over: {', '.join(passed)}."
