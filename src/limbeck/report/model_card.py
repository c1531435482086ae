"""The model card: `README.md` in the student's folder, made from the run's record in the Hub's format."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, Template

from limbeck.report.card_sections import budget, layer_rows, score_rows
from limbeck.report.export_section import export_lines, export_title, latency_markdown
from limbeck.report.figures import format_count
from limbeck.report.front_matter import front_matter, is_in_float32, one_line
from limbeck.report.head_usage import HEAD_USAGE
from limbeck.report.onnx_usage import onnx_usage
from limbeck.report.table import comparison_markdown
from limbeck.report.task_scores import TaskScores
from limbeck.report.teacher_card import recorded_hub_name

CARD = "README.md"
_TEMPLATE = "model_card.md.j2"
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~$])")
_POOLING_KEYS = ("pooling_mode", "pooling_mode_cls_token", "pooling_mode_mean_tokens")
_GROUPS_SHOWN = 12


def write_model_card(
    record: Mapping[str, Any],
    folder: Path | str,
    *,
    scores: TaskScores | None = None,
    export: Mapping[str, Any] | None = None,
) -> Path:
    """Write the model card of a student.

    What is not in the record is left out. Paths of this machine are shortened to their last part: a card is
    made to be published, and `run.json` has them in full.

    Args:
        record: A run's record; the fields that are read are those of
            `limbeck.report.record_fields.RunFields`.
        folder: The student's folder, or that of an export; with `modules.json` in it, the card says how to use
            sentence-transformers.
        scores: The student's scores on tasks, if it was evaluated.
        export: The record of the export, for the folder of one.

    Returns:
        The path of `README.md`.
    """
    path = Path(folder) / CARD
    path.write_text(model_card(record, Path(folder), scores=scores, export=export), encoding="utf-8")
    return path


def model_card(
    record: Mapping[str, Any],
    folder: Path,
    *,
    scores: TaskScores | None = None,
    export: Mapping[str, Any] | None = None,
) -> str:
    """Return the text of the card; the arguments are those of `write_model_card`."""
    pooled = (folder / "modules.json").is_file()
    # A folder that makes sentence vectors is exported without its head.
    head = HEAD_USAGE.get(str((export or _mapping(record, "student")).get("head")))
    teacher, student = _mapping(record, "teacher"), _mapping(record, "student")
    start = student.get("initialisation")
    evaluation = _mapping(record, "evaluation")
    stages, on_hub = _stages(record), recorded_hub_name(record)
    body = _template().render(
        name=one_line(record.get("name")) or "Student",
        teacher=teacher,
        teacher_name=on_hub or _teacher_name(teacher),
        teacher_on_hub=on_hub is not None,
        student=student,
        initialisation=start.get("summary") if isinstance(start, Mapping) else start,
        corpus=_mapping(record, "corpus"),
        problems=_mapping(_mapping(record, "corpus"), "report").get("counts") or {},
        stages=stages,
        budget=budget(record, stages),
        layers=[(stage, rows) for stage in stages if (rows := layer_rows(stage))],
        citations=_citations(record),
        untrained=_untrained(record, pooler=export is None or not export.get("file")),
        head=head,
        pooled=pooled,
        pooling=_pooling(folder, record),
        comparison=comparison_markdown(evaluation) if evaluation else "",
        scores=scores,
        score_rows=score_rows(scores) if scores is not None else [],
        export=export_part(export) if export is not None else "",
        measured_on=_measured_on(export),
        graph=export is not None and bool(export.get("file")),
        graph_usage=onnx_usage(export) if export is not None and export.get("file") else "",
        hardware=_hardware(record),
        timings=_mapping(record, "timings"),
        peak=record.get("peak_memory_bytes"),
        versions=_mapping(record, "versions"),
        commit=record.get("git_commit"),
        seeds=_mapping(record, "seeds"),
        created=record.get("created"),
    )
    head_of_card = front_matter(record, pooled=pooled, head=head, scores=scores, export=export)
    return head_of_card + "\n" + re.sub(r"\n{3,}", "\n\n", body).strip() + "\n"


def export_part(export: Mapping[str, Any]) -> str:
    """Return what a card says of an export: what it is, how far from its source, and what int8 gains or costs.

    Args:
        export: The record of the export.
    """
    lines = [f"{escape_markdown(export['source'])} as {escape_markdown(export_title(export))}.", ""]
    lines += [f"- {escape_markdown(line)}" for line in export_lines(export)]
    if export.get("int8"):
        lines += ["", latency_markdown(export["int8"]["latency"])]
    return "\n".join(lines)


def _measured_on(export: Mapping[str, Any] | None) -> str:
    """Say what the tables are of where that is not what the folder holds."""
    if export is None or (is_in_float32(export) and not export.get("file")):
        return ""
    return "Measured on the float32 student in PyTorch, not on this export, whose own figures are under *This export*."


def escape_markdown(value: Any) -> str:
    """Return any value as one line of plain text: nothing in it is Markdown, HTML or a table cell's end."""
    return _MARKDOWN.sub(r"\\\1", one_line(value))


def inline_code(value: Any) -> str:
    """Return any value as one code span, whatever backticks it holds."""
    line = one_line(value).replace("|", "¦")  # a bar ends a table cell even inside a code span
    fence = "`" * (_longest_run_of_backticks(line) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"`{line}`"


def code_block(value: Any, language: str = "") -> str:
    """Return any value as a fenced block that nothing inside it can close."""
    text = "".join(c for c in str(value) if c.isprintable() or c in "\n\t").strip("\n")
    fence = "`" * max(3, _longest_run_of_backticks(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def web_address(value: Any) -> str:
    """Return an http(s) address that cannot end the link it stands in; empty for anything else."""
    line = one_line(value)
    return quote(line, safe=":/?#@!$&=+,;%~-._") if re.match(r"https?://[^/\s]", line) else ""


def short_name(value: Any) -> str:
    """Return a path's last part; Hub names and `package:` or `hub:` sources as they are."""
    line = one_line(value)
    is_path = line.startswith(("/", ".", "~")) or "\\" in line or line.count("/") > 1 or Path(line).exists()
    if not is_path or re.match(r"(package|hub):", line):
        return line
    return _last_part(line)


def _teacher_name(teacher: Mapping[str, Any]) -> str:
    line = one_line(teacher.get("name_or_path"))
    # Of a folder that was given relative to another one than this, nothing else tells that it is a path.
    return _last_part(line) if teacher.get("kind") == "folder" else short_name(line)


def _last_part(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1] or path


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("limbeck.report"),
        autoescape=False,  # Markdown, not HTML: the filters escape what the record holds
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        text=escape_markdown,
        code=inline_code,
        block=code_block,
        link=web_address,
        count=format_count,
        short=short_name,
    )
    return environment.get_template(_TEMPLATE)


def _longest_run_of_backticks(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


def _mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping under a key; an empty one where there is none."""
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def _stages(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = record.get("stages")
    return [stage for stage in found if isinstance(stage, Mapping)] if isinstance(found, Sequence) else []


def _citations(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return each method's citation once, in the order of the stages."""
    found = {str(c): c for stage in _stages(record) if (c := _mapping(stage, "citation"))}
    return list(found.values())


def _untrained(record: Mapping[str, Any], *, pooler: bool) -> dict[str, Any]:
    """Return what no stage trained: number of tensors, modules, how many hold the teacher's values.

    Args:
        record: A run's record.
        pooler: Whether the folder has a pooler; graphs are written without.
    """
    untrained = _mapping(record, "untrained")
    if untrained:
        names = [str(name) for name in untrained.get("names") or []]
    else:  # an older record: what every stage left out
        lists = [[str(name) for name in stage.get("untrained") or []] for stage in _stages(record)]
        names = [name for name in lists[0] if all(name in other for other in lists)] if lists else []
    names = [name for name in names if pooler or not name.startswith("pooler.")]
    # The module two levels above the tensor says enough: `encoder.layer.2.output`, not each weight and bias
    # in it.
    groups = list(dict.fromkeys(".".join(name.split(".")[:-2]) or name for name in names))
    more = [f"and {len(groups) - _GROUPS_SHOWN} more modules"] if len(groups) > _GROUPS_SHOWN else []
    return {
        "count": len(names),
        "groups": groups[:_GROUPS_SHOWN],
        "more": more,
        "from_teacher": len(untrained.get("from_teacher") or []),
    }


def _pooling(folder: Path, record: Mapping[str, Any]) -> str:
    """Return how sentence vectors are pooled: as the folder says, else as they were measured, else mean."""
    try:
        said = json.loads((folder / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        said = {}
    if isinstance(said, Mapping) and any(key in said for key in _POOLING_KEYS):
        return "cls" if said.get("pooling_mode_cls_token") or said.get("pooling_mode") == "cls" else "mean"
    measured = _mapping(_mapping(record, "evaluation"), "settings").get("pooling")
    return str(measured) if measured in ("mean", "cls") else "mean"


def _hardware(record: Mapping[str, Any]) -> str:
    """Return the machine in one line."""
    hardware = _mapping(record, "hardware")
    memory = hardware.get("memory_bytes")
    device, cpu, cores = (hardware.get(key) for key in ("device", "cpu", "cores"))
    parts = [
        str(device) if device and device != "cpu" else "",
        str(cpu) if cpu else "",
        f"{cores} cores" if cores else "",
        f"{memory / 2**30:.0f} GiB" if isinstance(memory, (int, float)) else one_line(hardware.get("memory")),
    ]
    return ", ".join(part for part in parts if part)
