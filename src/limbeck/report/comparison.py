"""Comparisons of methods: tables for the terminal and files, and the sections of a report."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import RenderableType

from limbeck.core import blocks, markdown, records, studies
from limbeck.core.blocks import AnyCell, Block, Cell, Notes, Paragraph, Section, Table, console, interval, mean, number
from limbeck.core.paths import short_model_name
from limbeck.core.studies import Comparison, ComparisonSummary, StudentBlock
from limbeck.report import evaluation, plots
from limbeck.report.certainty import one_answer_lines, share_kept
from limbeck.report.figures import bars_figure, bars_of, course_figures, layers_figure, measured, quality_figures
from limbeck.report.findings import ComparisonFound, RunFound, run_states, without_path
from limbeck.report.quality import format_count, write_forms
from limbeck.report.run import provenance_blocks, stage_links

STEM = "comparison_table"
_LAYOUT = blocks.Layout(cut=30)
_IN_UNITS = {"highest": "held out, ↑", "lowest": "held out, ↓"}
_COLUMNS = (
    *("student", "method", "mapping", "figure", "metric", "mean", "deviation", "runs", "low", "high", "retention"),
    "rank",
)
_MOST_DIAGRAMS = 12
ONE_SEED = "One seed: differences between rows may be due to chance, so nothing is ranked."


def comparison_tables(summary: ComparisonSummary) -> list[Table]:
    """Lay out all students at once where there are several, then each with all its columns."""
    several = len(summary.blocks) > 1 and summary.main is not None
    return [*([_overview(summary)] if several else []), *(_student_table(summary, block) for block in summary.blocks)]


def _overview(summary: ComparisonSummary) -> Table:
    """Lay out the main figure as the comparative study's table 3: methods and mappings down, students across."""
    found: dict[str, dict[str, studies.ComparedRow]] = {}
    for block in summary.blocks:
        for row in block.rows:
            found.setdefault(row.label, {})[block.student] = row
    teacher: tuple[AnyCell, ...] = (summary.teacher.title, *[_main(summary, summary.teacher)] * len(summary.blocks))
    rows: Iterator[tuple[AnyCell, ...]] = (
        (label, *(_main(summary, by_student.get(block.student)) for block in summary.blocks))
        for label, by_student in found.items()
    )
    headings = ("", *(f"{block.student}\n{_cost(block.cost, lengthy=False)}" for block in summary.blocks))
    title = f"All students: {summary.main.title if summary.main else ''}{_seeds(summary)}"
    return Table(title, headings, (teacher, *rows), words=(0,), faint=(0,), layout=_LAYOUT)


def _student_table(summary: ComparisonSummary, block: StudentBlock) -> Table:
    """Lay out a student as the comparative study's table 5: every method and mapping, every task."""
    lines: list[studies.ComparedScores] = [summary.teacher, *block.rows]
    scores = evaluation.score_headings(summary.columns, lines)
    own: dict[str, Callable[[studies.ComparedRow], Cell]] = {}
    if summary.main and any(row.place is not None for row in block.rows):
        own["rank\n"] = lambda row: Cell(row.place)
    if summary.main and any(row.over_seeds is not None for row in block.rows):
        digits = digits_of(summary.main)
        own[f"95 % over seeds\n{summary.main.title}"] = lambda row: interval(row.over_seeds, digits)
    if summary.main and any(_kept(summary, row) is not None for row in block.rows):
        own[f"% of teacher\n{summary.main.title}"] = lambda row: Cell(_kept(summary, row), "{:.1f} %")
    rows: list[tuple[AnyCell, ...]] = []
    for line in lines:
        label: AnyCell = (
            _label(line) if isinstance(line, studies.ComparedRow) else short_model_name(summary.teacher.title)
        )
        first = [make(line) if isinstance(line, studies.ComparedRow) else Cell(None) for make in own.values()]
        measures = (mean(line.held_out.get(measure.key), measure.digits) for measure in summary.held_out)
        rows.append((label, *first, *evaluation.score_cells(scores, line), *measures))
    published = tuple(range(len(rows), len(rows) + len(block.published)))
    for row in block.published:
        label, *cells = evaluation.published_cells(scores, row)
        rows.append((label, *[Cell(None)] * len(own), *cells, *[Cell(None)] * len(summary.held_out)))
    measured = (f"{measure.title}\n{_IN_UNITS[measure.best]}" for measure in summary.held_out)
    cost = _cost(block.cost)
    title = f"{block.student} ({block.shape}){': ' + cost if cost else ''}{_seeds(summary)}"
    best = tuple(index for index, row in enumerate(block.rows, start=1) if row.place == 1)
    headings = ("", *own, *scores.values(), *measured)
    return Table(title, headings, tuple(rows), (0,), best, (0,), published, layout=_LAYOUT)


def _seeds(summary: ComparisonSummary) -> str:
    """Say in the title of a table that one seed ranks nothing; nothing of several."""
    return "; one seed, so nothing is ranked" if has_one_seed(summary) else ""


def has_one_seed(summary: ComparisonSummary) -> bool:
    """Return whether no row has more than one seed."""
    return max((row.finished for block in summary.blocks for row in block.rows), default=0) == 1


def baseline_lines(summary: ComparisonSummary, main: studies.MainFigure) -> Iterator[str]:
    """Say of rows that train nothing where their figure lies among those of trained ones, for one seed, unranked."""
    for block in summary.blocks:
        trained = [row.main.mean for row in block.rows if row.main is not None and not trains_nothing(row)]
        for row in block.rows:
            if row.main is None or not trained or not trains_nothing(row):
                continue
            value, of = row.main.mean, {1: "the trained method", 2: "both trained methods"}.get(len(trained))
            of = of or f"all {len(trained)} trained methods"
            above = sum(value > other for other in trained)
            place = f"above {above} of {len(trained)} trained methods"
            if above == len(trained) or all(value < other for other in trained):
                place = f"{'above' if above else 'below'} {of}"
            on = f"On {block.student}, " if len(summary.blocks) > 1 else ""
            scored = f"`{row.label}`, which trains nothing, scored {value:.{digits_of(main)}f}"
            yield f"{on}{scored}: {place} in this one seed."


def trains_nothing(row: studies.ComparedRow) -> bool:
    """Return whether a row's finished students are as initialised: its runs read no tokens."""
    return row.tokens is not None and bool(row.tokens.runs) and not any(row.tokens.runs)


def _kept(summary: ComparisonSummary, row: studies.ComparedScores) -> float | None:
    """Return the share that a row keeps of the teacher's main figure, in percent."""
    return share_kept(summary.main.key, row, summary.teacher) if summary.main else None


def _main(summary: ComparisonSummary, row: studies.ComparedScores | None) -> Cell:
    """Return the main figure of a row: bold where no other is better beyond chance, italic for the best mapping."""
    main = summary.main
    if row is None or main is None:
        return Cell(None)
    return replace(mean(row.main, digits_of(main)), mark=_mark(row))


def digits_of(main: studies.MainFigure) -> int:
    """Return how many digits the main figure is printed with."""
    return main.digits if main.kind == "held_out" and main.digits is not None else 1


def _mark(row: studies.ComparedScores) -> str:
    if not isinstance(row, studies.ComparedRow) or row.place is None:
        return ""
    return "bold" if row.place == 1 else "italic" if row.best_mapping else ""


def _label(row: studies.ComparedRow) -> Cell:
    seeds = "" if row.finished == row.wanted else f" ({row.finished} of {row.wanted} seeds)"
    return Cell(f"{row.label}{seeds}", mark=_mark(row))


def _cost(cost: studies.ModelCost | None, *, lengthy: bool = True) -> str:
    """Return the parameters of a student, and its speed beside the teacher's."""
    if cost is None or cost.parameters is None:
        return ""
    millions = f"{cost.parameters / 1e6:.2f} M"
    if not lengthy:
        return ", ".join([millions, *(f"{found.speedup:.1f}x" for found in cost.speedups[:1])])
    speedups = [f"{s.speedup:.1f}x as fast at {s.batch} x {s.length} tokens" for s in cost.speedups]
    return ", ".join([f"{millions} parameters", *speedups])


# The forms of the tables: for the terminal, Markdown, CSV and JSON.


def methods_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the tables for the terminal: all students at once, then each with all its columns, then notes."""
    comparison = Comparison.read(record)
    return console(*comparison_tables(comparison.summary), Notes(tuple(_notes(comparison))))


def methods_markdown(record: Mapping[str, Any]) -> str:
    """Return everything as Markdown: the tables, combinations left out, costs and notes."""
    comparison = Comparison.read(record)
    tables = [
        replace(table, headings=tuple(heading.replace("\n", ", ").removesuffix(", ") for heading in table.headings))
        for table in comparison_tables(comparison.summary)
    ]
    costs = evaluation.cost_tables(comparison.costs) if comparison.costs is not None else ()
    sections = [
        Section("", (Paragraph(" ".join(_setting(comparison))),)),
        *(Section(table.caption, (table,)) for table in tables),
        Section("Left out", (Notes(tuple(_left_out(comparison))),)),
        *(Section(table.caption, (table,)) for table in costs),
        Section("Notes", (Notes((*_answers(comparison.summary), *comparison.summary.notes)),)),
    ]
    return markdown.markdown_file(str(comparison.name), sections)


def methods_csv(record: Mapping[str, Any]) -> str:
    """Return every figure on a separate line, unrounded."""
    return blocks.to_csv(_COLUMNS, _csv_rows(Comparison.read(record).summary))


def _csv_rows(summary: ComparisonSummary) -> Iterator[dict[str, Any]]:
    teacher = summary.teacher
    yield from ({"method": "teacher", **row} for row in (*_figure_rows(summary, teacher), *_cost_rows(teacher.cost)))
    for block in summary.blocks:
        for line in block.rows:
            start = {"student": block.student, "method": line.method, "mapping": line.mapping}
            yield from ({**start, **row} for row in _figure_rows(summary, line))
        yield from ({"student": block.student, **row} for row in _cost_rows(block.cost))


def write_comparison(record: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the tables as Markdown, CSV and JSON.

    Args:
        record: Of the comparison.
        folder: An existing folder.

    Returns:
        The files.
    """
    whole = {**record["summary"], "impossible": record["impossible"], "costs": record["costs"]}
    texts = {".md": methods_markdown(record), ".csv": methods_csv(record), ".json": records.text_of(whole)}
    return write_forms(folder, STEM, texts)


def _left_out(record: Comparison) -> list[str]:
    return [f"{one.label} on {one.student}: {one.reason}" for one in record.impossible]


def _notes(record: Comparison) -> list[str]:
    ranking = [_ranking(record.summary, record.summary.main)] if record.summary.main is not None else []
    return [
        *ranking,
        *_answers(record.summary),
        *(f"Left out: {line}" for line in _left_out(record)),
        *record.summary.notes,
    ]


def _answers(summary: ComparisonSummary) -> list[str]:
    lines = ((row.label, row) for block in summary.blocks for row in block.rows)
    return one_answer_lines(summary.columns, lines)


def _setting(comparison: Comparison) -> Iterator[str]:
    """Name the settings of all runs, and how the figures are to be read."""
    summary, plan = comparison.summary, comparison.plan
    yield (
        f"Teacher {summary.teacher.title} ({summary.teacher.shape}); {plan.budget.tokens:,} tokens "
        f"per run from a corpus of {comparison.corpus.tokens:,}; seeds {', '.join(map(str, plan.seeds))}."
    )
    if summary.preset is not None:
        yield f"Task scores with the preset '{summary.preset}', in percent."
    if summary.main is not None:
        yield _ranking(summary, summary.main)
    rows = [row for block in summary.blocks for row in block.rows]
    if read := [tokens for row in rows if row.tokens is not None for tokens in row.tokens.runs if tokens]:
        least, most = min(read), max(read)
        yield f"Runs read {least:,.0f}" + (f" to {most:,.0f} tokens." if most > least else " tokens each.")
    if any(figure is not None and len(figure.runs) > 1 for row in rows for figure in row.figures.values()):
        over = "fine-tuning runs" if has_one_seed(summary) else "distillation seeds"
        yield f"± is the sample standard deviation over {over}."


def _ranking(summary: ComparisonSummary, main: studies.MainFigure) -> str:
    """Say by what rows are ranked, or why they are not."""
    if has_one_seed(summary):
        advice = f"Give the plan three or more `seeds` to rank the rows by {main.title}."
        return " ".join([ONE_SEED, *baseline_lines(summary, main), advice])
    if all(row.place is None for block in summary.blocks for row in block.rows):
        return "Fewer than two rows have several seeds, so nothing is ranked."
    return (
        f"Ranked by {main.title}: a rank is one more than the number of rows that are better beyond chance, by the "
        "95 % interval of the differences per seed (Student's t). Rows of rank 1, in bold, cannot be told apart from "
        "the best; italics mark the best mapping of a method."
    )


def _figure_rows(summary: ComparisonSummary, row: studies.ComparedScores) -> Iterator[dict[str, Any]]:
    """Go through a row's figures; the rank stands beside the figure that decides it."""
    held_out = ((measure.key, row.held_out.get(measure.key)) for measure in summary.held_out)
    measures = (
        {"key": key, **evaluation.numbers(figure), "retention": None} for key, figure in held_out if figure is not None
    )
    for found in (*evaluation.csv_rows(summary.columns, row), *measures):
        decides = summary.main is not None and found["key"] == summary.main.key and "retention" in found
        within = {} if getattr(row, "finished", 1) > 1 else {"low": None, "high": None}  # Not over fine-tunings.
        yield {**found, "figure": found["key"], "rank": getattr(row, "place", None) if decides else None, **within}
    for name, spent in (("tokens", row.tokens), ("seconds", row.seconds)):
        if spent is not None:
            yield {"figure": name, **evaluation.numbers(spent)}


def _cost_rows(cost: studies.ModelCost | None) -> Iterator[dict[str, Any]]:
    if cost is not None:
        yield {"figure": "parameters", "mean": cost.parameters}
        for found in cost.speedups:
            yield {"figure": f"speedup at {found.batch} x {found.length} tokens", "mean": found.speedup}


# The sections of a report: tables, bars by task and measure, layers of each method, costs, runs.


def _flow(found: ComparisonFound) -> Iterator[Block]:
    record, cells = found.record, found.record.cells
    tokens, corpus = record.plan.budget.tokens, record.corpus.tokens
    budget = f"{format_count(tokens)} tokens per run" if tokens is not None else "not recorded"
    read = f" from a corpus of {format_count(corpus)}" if corpus is not None else ""
    seeds = dict.fromkeys("" if cell.seed is None else str(cell.seed) for cell in cells)
    yield blocks.Steps(
        (
            ("Teacher", f"{without_path(record.teacher.title)}, {record.teacher.shape}"),
            ("Students", ", ".join(dict.fromkeys(cell.student for cell in cells))),
            ("Methods", ", ".join(dict.fromkeys(cell.method for cell in cells))),
            ("Budget", f"{budget}{read}; seeds {', '.join(seeds)}"),
        )
    )
    warnings = [*found.problems]
    if not record.is_finished:
        warnings.append(f"The comparison is not finished ({record.status or 'status not recorded'}).")
    done = sum(cell.status == "finished" for cell in cells)
    if done < len(cells):
        warnings.append(f"{done} of {len(cells)} runs are finished.")
    warnings += [f"{cell.title} failed: {cell.problem}" for cell in cells if cell.problem]
    if record.summary.is_empty:
        warnings.append("There is no table yet: the students have not been measured.")
    yield Notes(tuple(warnings[:20]), warning=True)
    if found.unfinished:
        yield run_states(found.unfinished)


def _results(found: ComparisonFound) -> Iterator[Block]:
    for table in comparison_tables(found.record.summary):
        names = [without_path(str(row[0])) for row in table.rows]
        own = {index: name for index, name in enumerate(names) if index not in table.published}
        yield from evaluation.page_tables(table, "Published results for models of the same shape", own)


def _figures(found: ComparisonFound) -> Iterator[Block]:
    summary, costs = found.record.summary, found.record.costs
    for block in summary.blocks:
        of = _on(summary, block)
        lines: list[tuple[str, studies.ComparedScores]] = [("teacher", summary.teacher)]
        lines += [(row.label, row) for row in block.rows]
        if summary.columns:
            scored = [(label, line) for label, line in lines if line.columns]
            for bars in evaluation.task_bars(summary.columns, scored):
                yield replace(bars, title=f"{bars.title}{of}")
        for measure in summary.held_out:
            held_out = bars_of(((label, line.held_out.get(measure.key)) for label, line in lines), measure.digits)
            better = "lower is better" if measure.best == "lowest" else "higher is better"
            yield from bars_figure(f"Held-out {measure.title}{of}", [plots.BarGroup(better, held_out)], measure.title)
    if summary.main is None or costs is None or not costs.timings:
        return
    models = [
        (f"{row.label}{_on(summary, block)}", costs.latency(block.student), evaluation.value_of(row.main), False)
        for block in summary.blocks
        for row in block.rows
    ]
    teacher = summary.teacher
    models.append(
        (short_model_name(teacher.title), costs.latency(teacher.name), evaluation.value_of(teacher.main), True)
    )
    lowest = summary.main.best == "lowest"
    several = not has_one_seed(summary)
    yield from quality_figures(
        measured(models), summary.main.title, evaluation.pass_of(costs), lowest=lowest, front=several
    )


def _on(summary: ComparisonSummary, block: StudentBlock) -> str:
    return f" on {block.student}" if len(summary.blocks) > 1 else ""


def _layers(found: ComparisonFound) -> Iterator[Block]:
    """Draw the layers that each method and mapping joins, from one run of each."""
    drawn: set[str] = set()
    for run in found.runs:
        for stage in run.stages:
            links = stage_links(run, stage)
            if links is None or not links.joins:
                continue
            several = f", stage '{stage.title}'" if len(run.stages) > 1 else ""
            figure = layers_figure(f"{_combination(found, run)}{several}", links)
            if figure.description not in drawn and len(drawn) < _MOST_DIAGRAMS:
                drawn.add(figure.description)
                yield figure


def _combination(found: ComparisonFound, run: RunFound) -> str:
    """Name a run without its comparison and its seed."""
    return run.title.removeprefix(f"{found.title}: ").rsplit(", seed", 1)[0]


def _training(found: ComparisonFound) -> Iterator[Block]:
    """Draw the courses of one run of each method and mapping beside each other."""
    figures = list(course_figures([(_combination(found, run), run) for run in found.runs]))
    yield from figures
    if figures and len(found.runs) < len(found.record.cells):
        yield Notes(("Of runs that differ only in their seed, only the first is drawn.",))


def _runs(found: ComparisonFound) -> Iterator[Block]:
    rows: tuple[tuple[AnyCell, ...], ...] = tuple(
        (
            cell.title,
            cell.status,
            Cell(" + ".join(map(str, cell.steps)) if "steps" in cell.model_fields_set else None),
            number(cell.tokens),
            Cell(None if cell.seconds is None else blocks.duration(cell.seconds)),
            number(cell.tokens / cell.seconds if cell.tokens and cell.seconds else None),
            cell.folder,
        )
        for cell in found.record.cells
    )
    if rows:
        headings = ("Run", "Status", "Steps", "Tokens", "Total time", "Overall tokens/s", "Folder")
        yield Table("Runs", headings, rows, words=(1, 6))
        yield Notes(("`limbeck report` on the folder of a run shows its terms and its held-out losses.",))


def _plan(found: ComparisonFound) -> Iterator[Block]:
    if plan := found.record.plan.to_dict():
        yield blocks.Code("Resolved plan", yaml.safe_dump(plan, sort_keys=False, allow_unicode=True, width=100), "yaml")


SECTIONS: dict[str, Callable[[ComparisonFound], Iterable[Block]]] = {
    "Overview": _flow,
    "Results": _results,
    "Figures": _figures,
    "Cost": lambda found: evaluation.cost_blocks(None if found.record.summary.is_empty else found.record.costs),
    "Layers": _layers,
    "Training": _training,
    "Runs": _runs,
    "Notes": lambda found: [Notes(tuple(_notes(found.record)))],
    "Plan": _plan,
    "Provenance": lambda found: provenance_blocks(found.record, found.folder),
}
"""Of a comparison; of one that is not finished its runs."""
