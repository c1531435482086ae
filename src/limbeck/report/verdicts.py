"""Verdicts: what a run, an evaluation, a comparison or a search comes to, in one or two sentences for its reader."""

from collections.abc import Iterator

from limbeck.core import studies, timing
from limbeck.core.blocks import DAMAGED, counted, interval
from limbeck.core.intervals import Interval
from limbeck.core.paths import short_model_name
from limbeck.core.studies import FINISHED
from limbeck.report import certainty, comparison, evaluation, run, search
from limbeck.report.findings import ComparisonFound, EvaluationFound, Found, RunFound, SearchFound
from limbeck.report.quality import at_start, ends_of

_MOST = 3


def verdict(found: Found) -> str:
    """Return the verdict of a folder: what it is, how good with its interval, how fast, what to watch.

    Nothing of inspections, and of records too damaged to tell.
    """
    try:
        match found:
            case RunFound():
                return _of_run(found)
            case EvaluationFound():
                return _of_evaluation(found)
            case ComparisonFound():
                return " ".join(_of_comparison(found))
            case SearchFound():
                return search.verdict_of(found)
    except DAMAGED:
        pass
    return ""


def _short(shape: str) -> str:
    """Return `6x384` of a shape as records write it."""
    return shape.partition(",")[0].rpartition(" ")[2]


def _within(ends: Interval | None, over: str, digits: int) -> str:
    return "" if ends is None else f" (95 %: {interval(ends, digits)}, over {over})"


def _note(line: str) -> str:
    return f"Note: {line}" if line else ""


def _of_run(found: RunFound) -> str:
    record, quality = found.record, run.quality_of(found)
    teacher, methods = (
        short_model_name(record.teacher.name_or_path),
        dict.fromkeys(stage.method for stage in found.stages),
    )
    taught = f"taught by {', '.join(methods)}" if methods else "as initialised, without training"
    what = (
        f"A {_short(record.student.shape)} student of {teacher}, {taught}" if record.student.shape and teacher else ""
    )
    figures = []
    if quality is not None:
        kept = "" if quality.kept is None else f", {quality.kept:.1%} of the teacher's"
        figures.append(f"{quality}{_within(quality.interval, quality.over, 3)}{kept}")
    watch = [*run.warnings_of(found)]
    if record.evaluation is not None and (speedup := record.evaluation.first_batch.speedup):
        batch = record.evaluation.first_batch
        figures.append(f"{speedup:.1f} times as fast at batch size {batch.batch_size}")
        if timing.is_doubtful(batch.teacher.median_ms, batch.student.median_ms, speedup, batch.rounds):
            watch.append("The machine was busy while speed was measured.")
    if what and quality is None:
        goes_on = found.status.status == "running"
        figures.append(f"its quality {'is measured at the end' if goes_on else 'was not measured'}")
    said = ": ".join(filter(None, [what, "; ".join(figures)]))
    return " ".join(filter(None, [f"{said}." if said else "", _note(watch[0] if watch else "")]))


def _of_evaluation(found: EvaluationFound) -> str:
    summary = found.summary
    if not summary.models or not summary.columns:
        return ""
    first, key, title = summary.models[0], *evaluation.main_figure(summary)
    models = summary.models[1:] or summary.models
    lines = [_model_line(summary, model, key) for model in models[:_MOST] if model.figures.get(key) is not None]
    more = f"; {len(models) - _MOST} more in the table" if len(models) > _MOST else ""
    base = evaluation.value_of(first.figures.get(key)) if len(summary.models) > 1 else None
    beside = "" if base is None else f" ({certainty.name_of(first)}: {base:.1f})"
    notes = [*certainty.only_answer_notes(summary), *found.problems]
    failed = sum(cell.status != FINISHED for cell in found.cells)
    notes += [f"{counted(failed, 'cell')} failed."] if failed else []
    runs = max((len(figure.runs) for model in models if (figure := model.figures.get(key))), default=0)
    if runs == 1 and len(models) > 1 and not evaluation.is_untrained(summary):
        notes.append(f"{certainty.ONE_RUN} the order of models may be due to chance.")
    return " ".join([f"{at_start(title)}{beside}: {'; '.join(lines)}{more}.", _note(notes[0] if notes else "")]).strip()


def _model_line(summary: studies.Evaluation, model: studies.EvaluatedModel, key: str) -> str:
    figure = model.figures[key]
    assert figure is not None
    column = model.columns.get(key)
    if certainty.is_meaningless(key, model):
        return f"{certainty.name_of(model)} {figure.mean:.1f}{certainty.ONE_ANSWER}"
    share = certainty.share_kept(key, model, summary.models[0])
    kept = f", {share:.1f} % of {certainty.name_of(summary.models[0])}" if share is not None else ""
    line = f"{certainty.name_of(model)} {figure.mean:.1f}"
    if column is not None and column.interval is not None:
        line += _within(ends_of(column.interval), counted(column.rows or 0, "row"), 1)
    elif (ends := certainty.over_runs(figure)) is not None:
        line += _within(ends, f"{len(figure.runs)} seeds", 1)
    speedups = [row.speedup for row in (summary.costs.timings if summary.costs else ()) if row.model == model.name]
    fast = f", {speedups[0]:.1f} times as fast" if speedups and speedups[0] is not None else ""
    return f"{line}{kept}{fast}"


def _of_comparison(found: ComparisonFound) -> Iterator[str]:
    summary = found.record.summary
    if summary.main is None:
        return
    main, digits = summary.main, comparison.digits_of(summary.main)
    for block in summary.blocks[:_MOST]:
        rows = [row for row in block.rows if row.main is not None]
        if not rows:
            continue
        best = [row for row in rows if row.place == 1]
        if not best:
            values = sorted(row.main.mean for row in rows if row.main is not None)
            spread = (
                f"{values[0]:.{digits}f} to {values[-1]:.{digits}f}" if len(values) > 1 else f"{values[0]:.{digits}f}"
            )
            yield f"On {block.student}, {main.title} of {counted(len(rows), 'combination')}: {spread}."
            continue
        said = "; ".join(
            f"{row.label} {row.main.mean:.{digits}f}{_within(row.over_seeds, f'{row.finished} seeds', digits)}"
            for row in best[:_MOST]
            if row.main is not None
        )
        others = f" and {len(best) - _MOST} more" if len(best) > _MOST else ""
        if len(rows) == 1:
            yield f"On {block.student}, {main.title}: {said}."
            continue
        rest = "other" if len(rows) == 2 else f"other {len(rows) - 1}"
        alike = "tie for first place" if len(best) > 1 else f"is better than the {rest}"
        yield f"On {block.student}, ranked by {main.title}: {said}{others} {alike}."
    if comparison.has_one_seed(summary):
        yield from comparison.baseline_lines(summary, main)
        yield _note("with one seed, differences may be due to chance, so nothing is ranked.")
