"""Evaluations on tasks: blocks for the terminal, and files as Markdown, CSV and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import RenderableType

from limbeck.core import markdown, records, studies
from limbeck.core.blocks import Block, Notes, Paragraph, Section, counted, to_csv
from limbeck.core.console_blocks import console
from limbeck.report.costs import cost_blocks, cost_notes, cost_tables
from limbeck.report.evaluation_tables import (
    chosen_lines,
    is_of_vectors,
    is_untrained,
    metrics_table,
    published_table,
    reading_notes,
    scores_table,
)
from limbeck.report.output_files import write_forms
from limbeck.report.scores import csv_rows, name_of, published_model, published_place

EvaluationRecord: TypeAlias = Mapping[str, Any] | studies.Evaluation
"""The tables of an evaluation, typed or as plain values."""
CostsRecord: TypeAlias = Mapping[str, Any] | studies.Costs
"""The costs of its models, typed or as plain values."""
STEM = "evaluation_table"
_MOST_PUBLISHED_ON_CONSOLE = 6
"""Most published rows on a console; the files have all."""
_CSV_COLUMNS = (
    *("source", "model", "column", "metric", "positive"),
    *("mean", "deviation", "runs", "low", "high", "retention"),
)


def evaluation_blocks(summary: EvaluationRecord, costs: CostsRecord | None = None) -> list[Block]:
    """Return the main table, its short notes, and the tables of costs as blocks.

    Only the published rows with the most figures are shown; the written files have all of them, and all notes.
    """
    record = studies.Evaluation.read(summary)
    blocks: list[Block] = []
    if record.columns:
        blocks += _score_blocks(record)
    if costs is not None:
        blocks += cost_blocks(studies.Costs.read(costs))
    return blocks


def _score_blocks(record: studies.Evaluation) -> list[Block]:
    """Return the main table, some published rows, and the short notes."""
    blocks: list[Block] = [scores_table(record, _title(record))]
    notes = []
    published = published_table(record)
    if published is not None:
        blocks.append(replace(published, rows=published.rows[:_MOST_PUBLISHED_ON_CONSOLE]))
        hidden = len(published.rows) - _MOST_PUBLISHED_ON_CONSOLE
        if hidden > 0:
            notes.append(f"`{STEM}.md` has {counted(hidden, 'more published row')}.")
    notes += reading_notes(record)
    # Of the notes on single models and tasks, one line of each kind.
    notes += record.notes_in_short
    if not _are_all_shown(record.notes, record.notes_in_short):
        notes.append(f"Of similar notes, the first is shown in full. `{STEM}.md` has all {len(record.notes)}.")
    return [*blocks, Notes(tuple(notes))]


def _are_all_shown(notes: Sequence[str], lines: Sequence[str]) -> bool:
    """Return whether lines have the subject and the whole text of all notes, which are `subject: text` each.

    Args:
        notes: The notes.
        lines: A line for each kind of note.
    """
    for note in notes:
        subject, _, text = note.partition(": ")
        if not any(subject in line and text in line for line in lines):
            return False
    return True


def evaluation_table(summary: EvaluationRecord) -> RenderableType:
    """Return the main table for the terminal, with its notes in short below it."""
    return console(*_score_blocks(studies.Evaluation.read(summary)))


def evaluation_markdown(summary: EvaluationRecord, costs: CostsRecord | None = None) -> str:
    """Return everything as Markdown: the main table, every metric, the chosen grid points, costs and notes.

    Args:
        summary: Of the evaluation; without columns only the costs are written.
        costs: As `limbeck.benchmark.costs.measure_costs` gives them.
    """
    record = studies.Evaluation.read(summary)
    sections = []
    if record.columns:
        sections.append(Section("", (Paragraph(f"# {_title(record)}"), scores_table(record))))
        published = published_table(record)
        if published is not None:
            sections.append(Section(published.caption, (published,)))
        sections.append(Section("All metrics", (metrics_table(record),)))
        sections.append(Section("Grid points", (Notes(tuple(chosen_lines(record))),)))
    notes = [*reading_notes(record), *record.notes]
    if costs is not None:
        costs_record = studies.Costs.read(costs)
        sections += [Section(table.caption, (table,)) for table in cost_tables(costs_record)]
        notes += cost_notes(costs_record)
    return markdown.markdown_file("", [*sections, Section("Notes", (Notes(tuple(notes)),))])


def _title(summary: studies.Evaluation) -> str:
    """Return the title of the table: how the models were made, and the table of a paper whose average is taken.

    A preset is a protocol of fine-tuning, so the title of models that were scored as they are names none.
    """
    if is_untrained(summary):
        subject = "Sentence vectors of models" if is_of_vectors(summary) else "Models"
        title = f"{subject} as they are"
    else:
        title = f"Fine-tuned with the preset '{summary.preset}'"
    if summary.average:
        title += f", averaged as in {summary.average}"
    return f"{title}, in percent"


def evaluation_csv(summary: EvaluationRecord) -> str:
    """Return every figure on a separate line, unrounded, with the share of the first model's score."""
    record = studies.Evaluation.read(summary)
    lines: list[dict[str, Any]] = []
    for model in record.models:
        for line in csv_rows(record.columns, model, record.models[0]):
            line |= {"source": "measured", "model": name_of(model), "column": line["key"]}
            lines.append(line)
    # Papers print one metric a task: the main one.
    main_metrics = {column.key: column.metric for column in record.columns}
    for paper in record.published:
        source = {"source": f"{paper.paper} {published_place(paper)}", "model": published_model(paper)}
        for key, value in paper.columns.items():
            lines.append({**source, "column": key, "metric": main_metrics[key], "mean": value})
        # An average that we computed of a paper's figures is not the paper's.
        for key, average in (("average", paper.average), ("without_cola", paper.without_cola)):
            if average is not None and key not in paper.computed:
                lines.append({**source, "column": key, "mean": average})
    return to_csv(_CSV_COLUMNS, lines)


def write_evaluation(summary: EvaluationRecord, folder: Path, costs: CostsRecord | None = None) -> list[Path]:
    """Write the tables as Markdown, CSV and JSON.

    Args:
        summary: Of the evaluation.
        folder: An existing folder.
        costs: Of the models, where they were measured.

    Returns:
        The files.
    """
    values = studies.Evaluation.read(summary).to_dict()
    if costs is not None:
        values["costs"] = records.plain(costs)
    texts = {
        ".md": evaluation_markdown(summary, costs),
        ".csv": evaluation_csv(summary),
        ".json": records.text_of(values),
    }
    return write_forms(folder, STEM, texts)
