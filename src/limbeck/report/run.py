"""Facts of a run in words and numbers: its steps, its stages, and how good and fast its models are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from limbeck.core.blocks import NOTHING, Block, Code, Facts, Notes, Paragraph, Section, Steps, Table, duration, guarded
from limbeck.report.figures import Measured, layers_figure, loss_blocks, quality_figure
from limbeck.report.findings import RunFound, StageFound, run_state
from limbeck.report.layer_links import LayerLinks, find_links, recorded_links
from limbeck.report.quality import comparison_notes, format_count, quality_table
from limbeck.report.records import entries, entry, last_part, mapping, number, text, texts, without_path


@dataclass(frozen=True)
class Quality:
    """The figure that a run is judged by.

    Attributes:
        label: Its name.
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


# What a reader of a run's report must not miss.


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


# What a result was made with: versions, commit, hardware, seeds, text.


_DIRTY = "-dirty"


def provenance_blocks(record: Mapping[str, Any], folder: Path) -> Iterator[Block]:
    """Say what a record knows of how it was made; the fields are those that all records have in common."""
    hardware = mapping(record, "hardware")
    memory = number(hardware, "memory_bytes")
    peak, device_peak = number(record, "peak_memory_bytes"), number(record, "peak_device_memory_bytes")
    cores, threads = text(hardware, "cores"), text(hardware, "threads")
    pairs = [
        ("Folder", str(folder)),
        ("Status", text(record, "status")),
        ("Begun", text(record, "created")),
        ("Last change", text(record, "updated")),
        ("Seeds", _seeds(record)),
        ("limbeck", text(record, "versions", "limbeck")),
        ("Commit", _commit(text(record, "git_commit"))),
        ("Versions", _versions(record)),
        ("Device", text(hardware, "device")),
        ("Processor", ", ".join(filter(None, [text(hardware, "cpu"), f"{cores} cores" if cores else ""]))),
        ("Threads", threads),
        ("Memory", "" if memory is None else f"{memory / 2**30:.1f} GiB"),
        ("Most memory in use", "" if peak is None else f"{peak / 2**30:.2f} GiB"),
        ("Most memory on the device", "" if device_peak is None else f"{device_peak / 2**30:.2f} GiB"),
        ("Platform", text(hardware, "platform")),
        ("Time", _times(record)),
    ]
    yield Facts(tuple((name, value) for name, value in pairs if value))
    if views := entries(record, "corpus", "views"):
        headings = ("Stage", "Unit", "Longest block, tokens", "Blocks", "Tokens", "Fingerprint")
        yield Table("Text, by its fingerprints", headings, tuple(map(_view, views)), words=(1, 5))
    if identity := mapping(record, "identity") or mapping(record, "fixed"):
        yield Code("What it is bound to", yaml.safe_dump(dict(identity), sort_keys=False, allow_unicode=True), "yaml")


def _view(view: Mapping[str, Any]) -> tuple[str, ...]:
    counts = [number(view, name) for name in ("blocks", "tokens")]
    shown = [NOTHING if count is None else f"{count:,.0f}" for count in counts]
    named = [text(view, name) or NOTHING for name in ("stage", "unit", "length")]
    return (*named, *shown, text(view, "fingerprint") or NOTHING)


def _seeds(record: Mapping[str, Any]) -> str:
    seeds = {**mapping(record, "seeds")} or {"seed": entry(record, "identity", "seed")}
    planned = entry(record, "plan", "seeds")
    if isinstance(planned, list):
        return ", ".join(map(str, planned))
    return ", ".join(f"{name} {seed}" for name, seed in seeds.items() if seed is not None)


def _commit(commit: str) -> str:
    changed = " with local changes" if commit.endswith(_DIRTY) else ""
    return commit.removesuffix(_DIRTY) + changed


def _versions(record: Mapping[str, Any]) -> str:
    found = mapping(record, "versions")
    return ", ".join(f"{name} {version}" for name, version in found.items() if name != "limbeck")


def _times(record: Mapping[str, Any]) -> str:
    found = {name: number(record, "timings", str(name)) for name in mapping(record, "timings")}
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in found.items() if seconds is not None)


# What a report says of one run.


def run_sections(run: RunFound) -> list[Section]:
    """Lay out a run: steps, results, layers, course, recipe, machine."""
    return [
        *guarded("What was done", lambda: _flow(run)),
        *guarded("Teacher beside student", lambda: _result(run)),
        *guarded("Layers", lambda: _layers(run)),
        *guarded("Training", lambda: _training(run)),
        *guarded("Recipe", lambda: _recipe(run)),
        *guarded("Provenance", lambda: provenance_blocks(run.record, run.folder)),
        *guarded("Sources", lambda: _sources(run)),
    ]


def stage_links(run: RunFound, stage: StageFound) -> LayerLinks | None:
    """Find the layers that a stage joins: composed again, with all that is known of its terms, where the record agrees.

    What the stage's record says itself counts where it says something else, or the shapes of its models are not known.
    """
    student = text(stage.record, "student", "shape") or text(run.record, "student", "shape")
    if stage.plan.get("student") is not None and not stage.record:
        student = ""
    teacher = _teacher_shape(run, stage)
    corpus = mapping(stage.plan, "corpus") or mapping(run.record, "recipe", "corpus")
    method = mapping(stage.plan, "method")
    composed = find_links(method, student, teacher, text(corpus, "task", "kind") or "text", stage.layer_cosines)
    recorded = recorded_links(entries(stage.record, "layers"), student, teacher)
    return composed if recorded is None or (composed and composed.pairs == recorded.pairs) else recorded


def _teacher_shape(run: RunFound, stage: StageFound) -> str:
    """The shape of a stage's teacher; empty for one that only its name is recorded of."""
    own = mapping(stage.plan, "teacher")
    if not own or text(own, "model") == text(run.record, "recipe", "teacher", "model") != "":
        return text(run.record, "teacher", "shape")
    taught_by = [other for other in run.stages if other.title == text(own, "stage")]
    return text(taught_by[0].record, "student", "shape") if taught_by else ""


def _flow(run: RunFound) -> Iterator[Block]:
    yield Steps(tuple(run_steps(run)))
    if run.status.status != "finished":
        yield run_state(run.status)
    if warnings := run_warnings(run):
        yield Notes(tuple(warnings), warning=True)


def _result(run: RunFound) -> Iterator[Block]:
    evaluation = mapping(run.record, "evaluation")
    if not evaluation:
        yield Notes(("Teacher and student were not compared.",))
        return
    table = quality_table(evaluation, "Both models, and what the student is of its teacher")
    labels = (str(row[0]) for row in table.rows)
    names = (f"↳ {label.strip()}" if label.startswith(" ") else label for label in labels)
    rows = tuple((name, *row[1:]) for name, row in zip(names, table.rows, strict=True))
    yield replace(table, rows=rows, words=(3,))
    if notes := comparison_notes(evaluation):
        yield Notes(tuple(notes))
    models, quality = measured_models(run), quality_of(evaluation)
    if quality is not None and len(models) > 1:
        yield quality_figure(models, quality.label, quality.latency)


def _layers(run: RunFound) -> Iterator[Block]:
    unknown = []
    drawn: set[str] = set()
    for stage in run.stages:
        links = stage_links(run, stage)
        if links is None:
            unknown.append(stage.title)
        elif not any(kind.pairs for kind in links.kinds):
            yield Paragraph(f"Stage '{stage.title}' ({stage.method}) reads no layer of a teacher.")
        else:
            title = f"Stage '{stage.title}': which layers learn from which"
            figure = layers_figure(
                title, links, "A line joins a layer of the teacher to one of the student that learns from it."
            )
            if figure.description in drawn:
                yield Paragraph(f"Stage '{stage.title}' joins the same layers by the same terms.")
            else:
                drawn.add(figure.description)
                yield figure
    if unknown:
        names = ", ".join(f"'{name}'" for name in unknown)
        yield Notes((f"Of {names} the layers cannot be drawn: the record does not have the shapes of both models.",))


def _training(run: RunFound) -> Iterator[Block]:
    if not run.stages:
        yield Notes(("No stage is recorded: the student is its start.",))
        return
    headings = (
        "Stage",
        "Method",
        "Steps",
        "Tokens",
        "Time",
        "Tokens/s",
        "Padding",
        "Precision",
        "Device",
        "Skipped steps",
    )
    yield Table("Stages", headings, tuple((stage.title, *stage_facts(stage)) for stage in run.stages), words=(1, 7, 8))
    if (terms := _terms(run)) is not None:
        yield terms
    for stage in run.stages:
        yield from loss_blocks(stage, f"Stage '{stage.title}'")


def _terms(run: RunFound) -> Table | None:
    """The last logged mean of every term, beside its value on held-out text."""
    rows = []
    for stage in run.stages:
        last, held_out = mapping(stage.record, "final_terms"), mapping(stage.record, "held_out")
        names = dict.fromkeys([*last, *(name for name in held_out if name != "loss")])
        rows += [(stage.title, str(name), _loss(number(last, name)), _loss(number(held_out, name))) for name in names]
        last_loss, measured = _last_loss(stage), number(held_out, "loss")
        if last_loss is not None or measured is not None:
            rows.append((stage.title, "loss (weighted sum)", _loss(last_loss), _loss(measured)))
    headings = ("Stage", "Term", "Training, at the end", "Held-out text")
    return Table("Terms of the loss", headings, tuple(rows), words=(1,)) if rows else None


def _last_loss(stage: StageFound) -> float | None:
    """The last logged loss; earlier versions left it in the log alone, where a thinned curve ends in a mean."""
    curve = stage.log.curve("loss") if stage.record else None
    logged = curve.points[-1][1] if curve is not None and curve.points and not curve.ranges else None
    found = number(stage.record, "final_loss")
    return logged if found is None else found


def _loss(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.5g}"


def _recipe(run: RunFound) -> Iterator[Block]:
    if run.recipe:
        yield Paragraph("With every default; `limbeck distill recipe.yaml --output runs/again` makes the run again.")
        yield Code("Resolved recipe", run.recipe, "yaml")


def _sources(run: RunFound) -> Iterator[Block]:
    """Name the papers of the methods, each once."""
    cited = {text(stage, "citation", "title"): mapping(stage, "citation") for stage in entries(run.record, "stages")}
    for title, citation in cited.items():
        if title:
            address = text(citation, "url")
            yield Paragraph(f"{text(citation, 'authors')}: {title}.", address if _is_web(address) else "")
    if bibtex := [str(c["bibtex"]) for c in cited.values() if isinstance(c.get("bibtex"), str)]:
        yield Code("BibTeX", "\n\n".join(bibtex), "bibtex")


def _is_web(address: str) -> bool:
    return address.startswith(("https://", "http://"))


__all__ = ["run_sections", "stage_links"]
