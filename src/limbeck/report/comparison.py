"""What a report says of a comparison: its tables, bars by task and measure, layers of each method, costs, runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import yaml

from limbeck.core.blocks import duration
from limbeck.report.comparison_tables import ComparisonTable, overview_table, student_tables
from limbeck.report.content import Block, Code, Figure, Notes, Section, Steps, Table, guarded
from limbeck.report.evaluation import cost_blocks, cost_latency, task_bars
from limbeck.report.evaluation_tables import NOTHING
from limbeck.report.figures import Measured, bars_figure, course_figures, layers_figure, quality_figure
from limbeck.report.findings import ComparisonFound, Record, RunFound, run_states
from limbeck.report.plots import Bar, BarGroup
from limbeck.report.quality import format_count
from limbeck.report.records import entries, entry, mapping, number, text, texts, without_path
from limbeck.report.run import provenance_blocks, stage_links

_MOST_DIAGRAMS = 12


def comparison_sections(found: ComparisonFound) -> list[Section]:
    """Lay out a comparison; of one that is not finished its runs."""
    record = found.record
    summary = mapping(record, "summary")
    measured = (
        [
            *guarded("Results", lambda: _results(summary)),
            *guarded("Figures", lambda: _figures(record, summary)),
            *guarded("Cost", lambda: cost_blocks(record)),
        ]
        if summary
        else []
    )
    return [
        *guarded("What was done", lambda: _flow(found)),
        *measured,
        *guarded("Layers", lambda: _layers(found)),
        *guarded("Training", lambda: _training(found)),
        *guarded("Runs", lambda: _runs(record)),
        *guarded("Notes", lambda: _notes(record, summary)),
        *guarded("Plan", lambda: _plan(record)),
        *guarded("Provenance", lambda: provenance_blocks(record, found.folder)),
    ]


def _flow(found: ComparisonFound) -> Iterator[Block]:
    record = found.record
    tokens, corpus = number(record, "plan", "budget", "tokens"), number(record, "corpus", "tokens")
    cells = entries(record, "cells")
    kinds = {name: list(dict.fromkeys(text(cell, name) for cell in cells)) for name in ("student", "method", "seed")}
    budget = f"{format_count(tokens)} tokens a run" if tokens is not None else "not recorded"
    read = f" of a corpus of {format_count(corpus)}" if corpus is not None else ""
    yield Steps(
        (
            ("Teacher", f"{without_path(text(record, 'teacher', 'title'))}, {text(record, 'teacher', 'shape')}"),
            ("Students", ", ".join(kinds["student"])),
            ("Methods", ", ".join(kinds["method"])),
            ("Budget", f"{budget}{read}; seeds {', '.join(kinds['seed'])}"),
        )
    )
    warnings = [*found.problems]
    status = text(record, "status")
    if status != "finished":
        warnings.append(f"The comparison is not finished: {status or 'its status is not recorded'}.")
    done = sum(cell.get("status") == "finished" for cell in cells)
    if done < len(cells):
        warnings.append(f"{done} of {len(cells)} runs are finished.")
    warnings += [f"{text(cell, 'title')} failed: {text(cell, 'problem')}" for cell in cells if cell.get("problem")]
    if not mapping(record, "summary"):
        warnings.append("No table is there: the students were not measured yet.")
    if warnings:
        yield Notes(tuple(warnings[:20]), warning=True)
    if found.unfinished:
        yield run_states(found.unfinished)


def _results(summary: Record) -> Iterator[Block]:
    overview = overview_table(summary) if len(summary["blocks"]) > 1 else None
    for table in [*([overview] if overview is not None else []), *student_tables(summary)]:
        yield from _tables(table)


def _tables(table: ComparisonTable) -> Iterator[Table]:
    headings = ("", *(f"{title} ({below})" if below else title for title, below in table.headings))
    measured = [row for row in table.rows if row.kind != "published"]
    rows = tuple((without_path(row.label), *(cell.strip("*") for cell in row.cells)) for row in measured)
    strong = tuple(index for index, row in enumerate(measured) if row.first)
    yield Table(table.title, headings, rows, strong=strong)
    published = tuple((row.label, *row.cells) for row in table.rows if row.kind == "published")
    if published:
        yield Table("Published, of models of the same shape", headings, published, folded=True)


def _figures(record: Record, summary: Record) -> Iterator[Block]:
    for block in summary["blocks"]:
        of = _on(summary, block)
        if summary["columns"]:
            lines = [("teacher", summary["teacher"]), *((_label(row), row) for row in block["rows"])]
            bars = task_bars(summary, [(label, line["columns"]) for label, line in lines if line["columns"]])
            yield replace(bars, title=f"{bars.title}{of}")
        for measure in summary["held_out"]:
            yield _held_out(summary["teacher"], block, measure, of)
    models = _measured(record, summary)
    if len(models) > 1:
        main, row = summary["main"], record["costs"]["timings"][0]
        latency = f"batch {row['batch']}, {row['length']} tokens, {record['costs']['machine']['device']}"
        yield quality_figure(models, main["title"], latency, lowest=main.get("best") == "lowest")


def _held_out(teacher: Record, block: Record, measure: Record, of: str) -> Figure:
    digits = measure["digits"]
    bars = []
    for style, (label, line) in enumerate([("teacher", teacher), *((_label(row), row) for row in block["rows"])]):
        found = line["held_out"].get(measure["key"])
        if found is not None:
            spread = "" if found["deviation"] is None else f" ± {found['deviation']:.{digits}f}"
            bars.append(Bar(label, found["mean"], found["deviation"], style, f"{found['mean']:.{digits}f}{spread}"))
    better = "less is better" if measure["best"] == "lowest" else "more is better"
    title = f"Held-out {measure['title']}{of}"
    return bars_figure(
        title, [BarGroup(better, bars)], measure["title"], caption="Whiskers are the deviation over seeds."
    )


def _measured(record: Record, summary: Record) -> list[Measured]:
    """Every row by the latency of its student and what ranks it; the teacher where it has both."""
    costs = record["costs"]
    if costs is None or summary["main"] is None:
        return []
    found = []
    for block in summary["blocks"]:
        latency = cost_latency(costs, block["student"])
        found += [
            Measured(f"{_label(row)}{_on(summary, block)}", latency, row["main"]["mean"])
            for row in block["rows"]
            if latency is not None and row["main"] is not None
        ]
    teacher, latency = summary["teacher"], cost_latency(costs, summary["teacher"]["name"])
    if latency is not None and teacher["main"] is not None:
        found.append(Measured(teacher["title"], latency, teacher["main"]["mean"], teacher=True))
    return found


def _on(summary: Record, block: Record) -> str:
    return f" on {block['student']}" if len(summary["blocks"]) > 1 else ""


def _label(row: Record) -> str:
    return f"{row['method']}, {row['mapping']}" if row["mapping"] else str(row["method"])


def _layers(found: ComparisonFound) -> Iterator[Block]:
    """Draw the layers that each method and mapping joins, from one run of each."""
    drawn: set[str] = set()
    for run in found.runs:
        for stage in run.stages:
            links = stage_links(run, stage)
            if links is None or not any(kind.pairs for kind in links.kinds):
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
    if figures and len(found.runs) < len(entries(found.record, "cells")):
        yield Notes(("Of runs that differ in their seed only, the first is drawn.",))


def _runs(record: Record) -> Iterator[Block]:
    rows = []
    for cell in entries(record, "cells"):
        steps, seconds, tokens = entry(cell, "steps"), number(cell, "seconds"), number(cell, "tokens")
        rows.append(
            (
                text(cell, "title"),
                text(cell, "status"),
                " + ".join(map(str, steps)) if isinstance(steps, list) else NOTHING,
                NOTHING if tokens is None else f"{tokens:,.0f}",
                NOTHING if seconds is None else duration(seconds),
                NOTHING if not tokens or not seconds else f"{tokens / seconds:,.0f}",
                text(cell, "folder"),
            )
        )
    if rows:
        headings = ("Run", "Status", "Steps", "Tokens", "Time in all", "Tokens/s in all", "Folder")
        yield Table("Runs", headings, tuple(rows), words=(1, 6))
        yield Notes(("`limbeck report` on the folder of a run shows its terms and its held-out losses.",))


def _notes(record: Record, summary: Record) -> Iterator[Block]:
    left_out = [
        f"Left out: {', '.join(filter(None, (text(one, 'method'), text(one, 'mapping'))))} on {text(one, 'student')}: "
        f"{text(one, 'reason')}"
        for one in entries(record, "impossible")
    ]
    lines = [*left_out, *texts(summary, "notes")]
    if lines:
        yield Notes(tuple(lines))


def _plan(record: Record) -> Iterator[Block]:
    plan = mapping(record, "plan")
    if plan:
        yield Code("Resolved plan", yaml.safe_dump(dict(plan), sort_keys=False, allow_unicode=True, width=100), "yaml")
