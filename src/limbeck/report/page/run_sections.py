"""What a report says of one run."""

from __future__ import annotations

from collections.abc import Iterator

from limbeck.report.figures import Row, comparison_notes, comparison_rows
from limbeck.report.page.content import NOTHING, Block, Code, Notes, Paragraph, Section, Steps, Table
from limbeck.report.page.findings import RunFound, StageFound
from limbeck.report.page.guarded import guarded
from limbeck.report.page.layer_figures import layers_figure
from limbeck.report.page.layer_links import LayerLinks, find_links, recorded_links
from limbeck.report.page.loss_figures import loss_blocks
from limbeck.report.page.plain_values import entries, mapping, number, text
from limbeck.report.page.provenance import provenance_blocks
from limbeck.report.page.quality_figures import quality_figure
from limbeck.report.page.run_facts import measured_models, quality_of, run_steps, stage_facts
from limbeck.report.page.run_state import run_state
from limbeck.report.page.run_warnings import run_warnings


def run_sections(run: RunFound) -> list[Section]:
    """Lay out a run: what was done, what came of it, which layers, how it went, the recipe, what it ran on."""
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
    rows = comparison_rows(evaluation)
    headings = ("", "Teacher", "Student", "Student vs teacher")
    # A label with a space before it is of what stands above it.
    cells = [(f"↳ {label.strip()}" if label.startswith(" ") else label, *rest) for label, *rest in map(Row.cells, rows)]
    yield Table("Both models, and what the student is of its teacher", headings, tuple(cells), words=(3,))
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
    """The last logged mean of every term, beside what it is on held-out text."""
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
