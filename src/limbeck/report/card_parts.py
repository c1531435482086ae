"""Parts of the cards of students and exports: their usage, an export's differences and latencies, scores on tasks."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from jinja2 import Environment
from rich.console import RenderableType

from limbeck.core import timing, yaml
from limbeck.core.blocks import NOTHING, Layout, Table, console, counted, mean
from limbeck.core.escaping import code_block, escape_markdown, inline_code, one_line
from limbeck.core.exports import Differences, Export, Int8, Int8Latency
from limbeck.core.kinds import kind_of
from limbeck.core.markdown import plain_table
from limbeck.core.paths import short_model_name
from limbeck.core.records import load
from limbeck.core.studies import Column, ColumnFigure, EvaluatedModel, Evaluation, Scores
from limbeck.errors import RecipeError
from limbeck.evaluation.tasks import DEFINITIONS, PUBLISHED
from limbeck.report.certainty import share_kept
from limbeck.report.page import templates
from limbeck.report.quality import format_count, metric_name

ExportRecord: TypeAlias = Mapping[str, Any] | Export
"""The record of an export, typed or as plain values."""


_HEADS = Path(__file__).with_name("templates") / "heads.yaml"
HEADS: Mapping[str, Mapping[str, str]] = yaml.read_document(_HEADS, f"'{_HEADS}'", "install limbeck again.")
"""By the head's kind, as records have it: the student in a word or two (`noun`), the Hub's name of the task
(`pipeline_tag`), and the class that loads it (`model_class`); the code that uses each is in the templates."""


def reads_pairs(task: Mapping[str, Any]) -> bool | None:
    """Return whether the rows of a task are pairs of texts; None where nothing says it.

    Args:
        task: As a recipe describes it, or its `name` alone.
    """
    if task.get("name") is not None:
        return DEFINITIONS[task["name"]].columns.pair is not None if task["name"] in DEFINITIONS else None
    if kind_of(task.get("kind")).has_queries:
        return True
    return task.get("pair_column") is not None if "kind" in task else None


def onnx_usage(export: Export) -> str:
    """Return Python that runs an exported graph on a line of text, by its outputs."""
    return card_templates().get_template("onnx_usage.py.j2").render(export=export).rstrip()


def router_usage(export: Export) -> str:
    """Return how a router is used, as Markdown: queries, documents, and an index that is there already."""
    return card_templates().get_template("router_usage.md.j2").render(export=export).strip()


@cache
def card_templates() -> Environment:
    """Return the templates of cards, which are Markdown: the filters escape what a record holds."""
    environment = templates(keep_trailing_newline=True)
    environment.filters |= {"text": escape_markdown, "code": inline_code, "block": code_block, "link": web_address}
    environment.filters |= {"count": format_count, "short": short_name, "mean": mean, "metric": metric_name}
    environment.filters |= {"exported": export_part, "graph_usage": onnx_usage, "kind": kind_of}
    environment.filters |= {"router_usage": router_usage}
    return environment


def web_address(value: Any) -> str:
    """Return an http(s) address that cannot end the link it stands in; empty for anything else."""
    line = one_line(value)
    return quote(line, safe=":/?#@!$&=+,;%~-._") if re.match(r"https?://[^/\s]", line) else ""


def short_name(value: Any) -> str:
    """Return a path's last part; Hub names and `package:` or `hub:` sources as they are."""
    line = one_line(value)
    is_path = line.startswith(("/", ".", "~")) or "\\" in line or line.count("/") > 1 or Path(line).exists()
    return folder_name(line) if is_path and not re.match(r"(package|hub):", line) else line


def folder_name(path: str) -> str:
    """Return a path's last part, on whatever system it was written, or of a model in a run's folder the run's."""
    return short_model_name(path.replace("\\", "/"))


# An export in Markdown and in plain lines: size, differences, and what int8 gains or costs.


_KINDS = ("float32", "int8")
_NAMES = {
    "onnx": "ONNX",
    "onnx-int8": "ONNX with int8 weights",
    "sentence-transformers": "a sentence-transformers folder",
    "router": "a sentence-transformers router",
    "safetensors": "safetensors",
}


def export_title(record: ExportRecord) -> str:
    """Return an export in a few words: `ONNX in float32, operator set 17`."""
    export = Export.read(record)
    precision = "" if export.dtype == "int8" else f" in {export.dtype}"
    return f"{_NAMES[export.format]}{precision}" + (f", operator set {export.opset}" if export.opset else "")


def export_part(export: Export) -> str:
    """Return the section of a card on an export: its kind, how far from its source, and what int8 gains or costs."""
    lines = [f"{escape_markdown(export.source)} as {escape_markdown(export_title(export))}.", ""]
    lines += [f"- {escape_markdown(line)}" for line in export_lines(export)]
    if export.int8:
        lines += ["", latency_markdown(export.int8.latency)]
    return "\n".join(lines)


def export_lines(record: ExportRecord) -> list[str]:
    """Return the measurements of an export, a plain sentence an entry."""
    return list(_export_lines(Export.read(record)))


def _export_lines(export: Export) -> Iterator[str]:
    found = export.differences
    if export.int8 is None:
        yield f"Weights: {export.megabytes:.1f} MB."
    if export.documents:
        yield f"Queries are encoded by {export.source}, documents by {export.documents}."
    if export.found is not None:
        yield f"As queries, {export.found:.0%} of the sample texts have their own document vector as nearest neighbour."
    largest = ", ".join(
        f"{value:.2g} in {name} (largest value {found.scale[name]:.2g})" if value is not None else f"none in {name}"
        for name, value in found.largest.items()
    )
    yield (
        f"Largest difference from the source, on {counted(found.texts or 0, 'sample text')} in "
        f"{counted(found.batches or 0, 'batch')} of up to {counted(found.tokens or 0, 'token')}: {largest}."
    )
    if export.dtype != "float32":
        yield from _quality(found)
    if export.int8 is not None:
        yield from _int8_lines(export.int8, export.weight_bits)
    if export.dtype == "float16" and export.format == "onnx":
        yield "Meant for a GPU: on a CPU, ONNX Runtime computes many float16 operators in float32 with casts."
    if verified := export.verified:
        yield f"Verified in a fresh process on {verified.texts} texts in {verified.batches} batches."


def _quality(found: Differences) -> Iterator[str]:
    if cosine := found.cosine:
        yield f"Cosine with the source's vectors: {cosine['mean']:.4f} on average, {cosine['lowest']:.4f} at worst."
    if found.equal_decisions is not None:
        yield (
            f"Decisions equal to the source's: {found.equal_decisions:.1%}; KL of the probabilities "
            f"{found.mean_kl:.2g} nats."
        )


def _int8_lines(int8: Int8, weight_bits: int | None) -> Iterator[str]:
    yield f"Size: {int8.megabytes['int8']:.1f} MB, float32 {int8.megabytes['float32']:.1f} MB."
    slower = [row for row in int8.latency if row.speedup < 0.97 and not _is_doubtful(row)]
    if slower:
        where = ", ".join(f"{row.batch} x {row.length} ({1 / row.speedup:.2f}x slower)" for row in slower)
        yield f"int8 is slower than float32 here, in texts x tokens: {where}. Use --format onnx for such batches."
    if busy := busy_line(int8.latency):
        yield busy
    if weight_bits == 7:
        yield "Weights have 7 bits: the exporting processor has no VNNI, without which 8 bits could overflow."
    else:
        yield "Weights have 8 bits, which may overflow on x86 processors without VNNI; to serve on one, export on one."


def latency_table(record: ExportRecord) -> RenderableType:
    """Return the latencies of float32 and int8 for the terminal: medians, 10th and 90th percentile, in ms."""
    headings = ("texts x tokens", "rounds", "float32 ms", "10th–90th", "int8 ms", "10th–90th", "int8 is")
    layout = Layout(fold=False, collapsed=False)
    export = Export.read(record)
    return console(_latencies(export.int8.latency if export.int8 else (), headings, ("{0}", "{1}–{2}"), layout))


def latency_markdown(rows: Sequence[Int8Latency]) -> str:
    """Return the latencies of float32 and int8 as a table."""
    headings = ("Texts x tokens", "Rounds", "float32, ms (10th–90th)", "int8, ms (10th–90th)", "int8 is")
    return plain_table(replace(_latencies(rows, headings, ("{0} ({1}–{2})",), Layout()), words=(0, 4)))


def _latencies(rows: Sequence[Int8Latency], headings: tuple[str, ...], forms: tuple[str, ...], layout: Layout) -> Table:
    cells = []
    for row in rows:
        times = (form.format(*_milliseconds(row, kind)) for kind in _KINDS for form in forms)
        cells.append((f"{row.batch} x {row.length}", str(row.rounds), *times, speed_of(row)))
    return Table("", headings, tuple(cells), words=(0,), layout=layout)


def _milliseconds(row: Int8Latency, kind: str) -> Iterator[str]:
    """Yield median, 10th and 90th percentile of `"float32"` or `"int8"`, in three digits or more."""
    for part in ("", "_p10", "_p90"):
        value: float = getattr(row, f"{kind}{part}_ms")
        yield f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def speed_of(row: Int8Latency) -> str:
    """Say how fast int8 is in a row of the latencies; nothing where that is unreliable, see `busy_line`."""
    return NOTHING if _is_doubtful(row) else speed_words(row.speedup)


def busy_line(rows: Sequence[Int8Latency]) -> str:
    """Say which rows have no speed, and why; empty where all have."""
    untold = [f"{row.batch} x {row.length}" for row in rows if _is_doubtful(row)]
    if not untold:
        return ""
    return (
        f"The machine was busy: at {', '.join(untold)} tokens there were fewer than {timing.FEWEST_ROUNDS} rounds, or "
        f"the median ratio disagrees with the ratio of medians, so no speedup is given ({NOTHING}); export again "
        "with more --seconds."
    )


def _is_doubtful(row: Int8Latency) -> bool:
    return timing.is_doubtful(row.float32_ms, row.int8_ms, row.speedup, row.rounds)


def speed_words(speedup: float) -> str:
    """Say how fast int8 is beside float32; within 3 % they are alike."""
    if 0.97 <= speedup <= 1.03:
        return "as fast"
    return f"{speedup:.2f}x faster" if speedup > 1 else f"{1 / speedup:.2f}x slower"


# The scores of one student on tasks, out of the tables of `limbeck evaluate`.


_OTHER_ROWS = re.compile(
    rf"rows?, but [\d,]+ are published|\({PUBLISHED} |(?:rows|queries), drawn$|"
    r"(?:made of|assembled from) \d+ of its \d+ parts"
)


@dataclass(frozen=True)
class TaskScore:
    """A student's main score on one task.

    Attributes:
        column: The task and its metric, as tables head them.
        student: The student's score.
        teacher: That of the first model of the evaluation, or None where this is the student.
        kept: The share that the student keeps of it, in percent; None where it says nothing.
        dataset: `type`, `name`, and `config` and `split` where the rows are also on the Hub.
    """

    column: Column
    student: ColumnFigure
    teacher: ColumnFigure | None
    kept: float | None
    dataset: dict[str, str]


@dataclass(frozen=True)
class TaskScores:
    """A student's scores.

    Attributes:
        preset: The protocol.
        teacher: Name of the first model of the evaluation; empty where that is the student.
        rows: A row a task.
        notes: Where the rows that were scored are not all that are published.
        as_is: Whether its head was scored as it is; else it was fine-tuned.
    """

    preset: str
    teacher: str
    rows: tuple[TaskScore, ...]
    notes: tuple[str, ...] = ()
    as_is: bool = False


def find_scores(student: Path, evaluation: Path | None = None) -> TaskScores | None:
    """Return the scores of a student, where it has been evaluated.

    Args:
        student: Its folder.
        evaluation: Folder of an evaluation; None looks into the folders in the run's, and where `limbeck compare`
            keeps its own.

    Raises:
        RecipeError: if the folder that is named holds no tables, or none of this student.
    """
    run = student.resolve().parent
    places = [*sorted(path.parent for path in run.glob(f"*/{Evaluation.FILE}")), run.parent.parent / "evaluation"]
    read = (load(Evaluation, place) for place in ([evaluation] if evaluation is not None else places))
    summaries = [summary for summary in read if summary.preset is not None and summary.models and summary.columns]
    found = next(filter(None, (scores_of(student, summary) for summary in summaries)), None)
    if evaluation is not None and not summaries:
        raise RecipeError(
            f"--evaluation '{evaluation}' holds no {Evaluation.FILE}; give an output folder of `limbeck evaluate`."
        )
    if evaluation is not None and found is None:
        names = ", ".join(model.name for model in summaries[0].models)
        raise RecipeError(f"--evaluation '{evaluation}' has no scores of '{student}'; its models are {names}.")
    return found


def scores_of(student: Path, summary: Evaluation) -> TaskScores | None:
    """Pick a student's scores out of an evaluation's summary; None where it is not among the models.

    Args:
        student: Its folder; models are known by their path, or by its last two parts where that has moved.
        summary: Of the evaluation.
    """
    own = next((model for model in summary.models if _is(student, model.name)), None)
    return None if own is None else scores_of_model(own, summary)


def scores_of_model(own: EvaluatedModel, summary: Evaluation) -> TaskScores:
    """Return the scores of one of the models of an evaluation's summary."""
    models = summary.models
    teacher = Scores() if own is models[0] else models[0]
    partly = _partly_read(summary)
    shown = ((column, figure) for column in summary.columns if (figure := own.columns.get(column.key)))
    rows = tuple(
        TaskScore(
            column,
            figure,
            teacher.columns.get(column.key),
            share_kept(column.key, own, teacher),
            _dataset(column, partly),
        )
        for column, figure in shown
        if not column.detail
    )
    name = "" if own is models[0] else models[0].name
    return TaskScores(str(summary.preset), name, rows, tuple(dict.fromkeys(partly.values())), summary.as_is)


def _partly_read(summary: Evaluation) -> dict[tuple[str, str], str]:
    """Task and split of scores on a part of the rows or on other rows than the published ones, with the first note."""
    return {
        (column.task, split): note
        for column in summary.columns
        if column.task is not None and column.task in DEFINITIONS
        for split in _splits_of(column)
        for note in reversed(summary.notes)
        if note.startswith(f"{DEFINITIONS[column.task].task.title} {split}: ") and _OTHER_ROWS.search(note)
    }


def _dataset(column: Column, partly: Collection[tuple[str, str]]) -> dict[str, str]:
    """Return the place of the rows on the Hub if all of them were scored, else the task's own name."""
    task = str(column.task)
    whole = task in DEFINITIONS and not any((task, split) in partly for split in _splits_of(column))
    found = DEFINITIONS[task].on_hub(_splits_of(column)[0]) if whole else None
    if found is None:
        return {"type": task, "name": column.title}
    hub, split = found
    config = {"config": split.config} if split.config else {}
    return {"type": hub.name, "name": column.title, **config, "split": split.split}


def _splits_of(column: Column) -> list[str]:
    """The splits whose rows a column is of, without the variants of sentence vectors."""
    return [split.partition("@")[0] for split in column.splits]


def _is(student: Path, name: str) -> bool:
    path = Path(name).expanduser()
    own, named = student.resolve().parts, path.resolve().parts
    return own == named or (len(path.parts) > 1 and own[-2:] == named[-2:])
