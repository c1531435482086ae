"""The model card: `README.md` in the student's folder, made from the run's record in the Hub's format."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from huggingface_hub import try_to_load_from_cache
from jinja2 import Environment, PackageLoader, Template

from limbeck.core.blocks import NOTHING, Cell
from limbeck.core.files import RECORD, read_record
from limbeck.core.markdown import code_block, escape_markdown, inline_code, one_line
from limbeck.errors import LimbeckError
from limbeck.export.source import RUN_STUDENT, head_of
from limbeck.models.loading import load_config
from limbeck.report.card_parts import HEAD_USAGE, HeadUsage, export_lines, export_title, latency_markdown, onnx_usage
from limbeck.report.quality import comparison_markdown, format_count
from limbeck.report.records import title_of
from limbeck.report.task_scores import TaskScores, find_scores
from limbeck.training.run import STAGES
from limbeck.training.teacher import LICENSE_KEYS, card_fields, is_hub_name, single_language

# Parts of a model card that are made of a run's record: the budget, the layer mapping, scores on tasks.


_PAIR = re.compile(r"(.+)_(\d+)_(\d+)")


def budget(record: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> str:
    """Return what training took in one line: steps, tokens, hours and where; empty if nothing is known.

    Args:
        record: A run's record.
        stages: Its stages.
    """
    steps, tokens, seconds = (_total(stages, key) for key in ("steps", "tokens", "seconds"))
    parts = [f"{steps:,.0f} steps" if steps else "", f"{format_count(tokens)} tokens" if tokens else ""]
    if seconds:
        unit, size = ("hours", 3600) if seconds >= 3600 else ("minutes", 60) if seconds >= 60 else ("seconds", 1)
        parts.append(f"{seconds / size:.1f} {unit} of training")
    line = ", ".join(part for part in parts if part)
    device = _device(record, stages)
    return f"{line}{f' on {device}' if device else ''}" if line else ""


def layer_rows(stage: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return a stage's layer mapping: student layers, teacher layers, terms; layer 0 is the embedding.

    A record that does not hold it may have it in the names of its terms (`hidden_2_6`).

    Args:
        stage: A stage of the record.
    """
    found: dict[tuple[str, str], list[str]] = {}
    layers = stage.get("layers")
    for entry in layers if isinstance(layers, Sequence) and not isinstance(layers, str) else ():
        if isinstance(entry, Mapping):
            key = (_numbers(entry.get("student")), _numbers(entry.get("teacher")))
            terms = entry.get("terms")
            found.setdefault(key, []).extend(map(str, terms if isinstance(terms, list) else []))
    if not found:
        terms = stage.get("final_terms")
        for name in terms if isinstance(terms, Mapping) else ():
            if match := _PAIR.fullmatch(str(name)):
                found.setdefault((match[2], match[3]), []).append(match[1])
    rows = [(student, teacher, ", ".join(dict.fromkeys(names))) for (student, teacher), names in found.items()]
    return [row for row in rows if row[0] and row[1]]


def score_rows(scores: TaskScores) -> list[tuple[str, str, str, str, str]]:
    """Return the cells of a table of task scores: task, metric, teacher, student, what is kept."""
    return [
        (row.title, row.metric, row.teacher or NOTHING, row.student, str(Cell(row.kept, "{:.1f} %")))
        for row in scores.rows
    ]


def _device(record: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> str:
    """The accelerator or processor that trained."""
    hardware = record.get("hardware")
    hardware = hardware if isinstance(hardware, Mapping) else {}
    on_processor = all(str(stage.get("device", "cpu")) == "cpu" for stage in stages)
    name = hardware.get("cpu") if on_processor else hardware.get("device")
    return str(name) if name and name != "cpu" else ""


def _total(stages: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(sum(stage[key] for stage in stages if isinstance(stage.get(key), (int, float))))


def _numbers(value: Any) -> str:
    return ", ".join(str(number) for number in value) if isinstance(value, list) else ""


# What a run's record says of its teacher: its name on the Hub, its licence, and a single language.


def inherited_fields(record: Mapping[str, Any]) -> dict[str, str]:
    """Return `license` (with `license_name` and `license_link`) and `language` of the front matter.

    The student's facts in the record go first, then those of the teacher's card. For a run of an earlier
    version, which recorded nothing of that, the card is read where the teacher is on this machine.

    Args:
        record: A run's record.
    """
    theirs = _teacher_card(
        _teacher_mapping(record.get("teacher")), _teacher_mapping(_teacher_mapping(record.get("recipe")).get("teacher"))
    )
    owner = record if isinstance(record.get("license"), str) else theirs
    found: dict[str, str] = {key: owner[key] for key in LICENSE_KEYS if isinstance(owner.get(key), str)}
    language = single_language(record.get("language") or theirs.get("language"))
    return found | ({"language": language} if language is not None else {})


def recorded_hub_name(record: Mapping[str, Any]) -> str | None:
    """Return the teacher's name on the Hub as the run recorded it; a folder has none, whatever it is called.

    Of a run of an earlier version, which did not record it, it is the name of the form `owner/model` that the recipe
    gives the teacher, else its `model` where that is in the Hub's cache on this machine.

    Args:
        record: A run's record.
    """
    teacher = _teacher_mapping(record.get("teacher"))
    if "hub_id" in teacher:
        found = teacher["hub_id"]
        return found if isinstance(found, str) and is_hub_name(found) else None
    asked = _teacher_mapping(_teacher_mapping(record.get("recipe")).get("teacher"))
    given = asked.get("name")
    if isinstance(given, str) and "/" in given and is_hub_name(given):
        return given
    name = asked.get("model") or teacher.get("name_or_path")
    is_cached = isinstance(name, str) and is_hub_name(name) and _is_cached(name)
    return name if is_cached else None


def _is_cached(name: str) -> bool:
    return isinstance(try_to_load_from_cache(name, "config.json"), str)


def _teacher_card(teacher: Mapping[str, Any], asked: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(teacher.get("card"), Mapping):
        return _teacher_mapping(teacher["card"])
    name = teacher.get("name_or_path")
    # The recipe may call it by another name than that of its place.
    place = asked.get("model") if name == asked.get("name") else name
    return card_fields(place) if isinstance(place, str) else {}


def _teacher_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# The Hub's front matter: the YAML block at the head of a model card.
#
# Everything in it comes from a run's record, so nothing in it is trusted: it is written by a YAML library, on one
# line a value, and what is not known is left out rather than guessed.


_HUB_TASKS = {
    "classification": "text-classification",
    "regression": "text-classification",
    "question_answering": "question-answering",
    "similarity": "sentence-similarity",
}
_HUB_CORPUS = re.compile(r"hub:([\w.-]+/[\w.-]+)(?:[:@#].*)?")


def front_matter(
    record: Mapping[str, Any],
    *,
    pooled: bool,
    head: HeadUsage | None = None,
    scores: TaskScores | None = None,
    export: Mapping[str, Any] | None = None,
) -> str:
    """Return the front matter of a student's card, `---` lines included.

    Args:
        record: A run's record; see `limbeck.core.records.Run`.
        pooled: Whether the folder also loads in sentence-transformers.
        head: The head of the student, if it has one.
        scores: The student's scores on tasks, if it was evaluated.
        export: The record of the export, for the card of one.
    """
    fields: dict[str, Any] = {}
    inherited = {key: one_line(value) for key, value in inherited_fields(record).items()}
    for key in ("language", "license", "license_name", "license_link"):
        if inherited.get(key):
            fields[key] = inherited[key]
    fields["library_name"] = "sentence-transformers" if pooled and head is None else "transformers"
    plain = "sentence-similarity" if pooled else "feature-extraction"
    fields["pipeline_tag"] = plain if head is None else head.pipeline_tag
    if base := recorded_hub_name(record):
        # The Hub has no word for a distilled model; of those it has, this is the one for weights that were trained on.
        fields |= {"base_model": base, "base_model_relation": "finetune"}
    if datasets := hub_datasets(record):
        fields["datasets"] = datasets
    methods = [one_line(stage.get("method")) for stage in _mappings(record.get("stages"))]
    fields["tags"] = list(
        dict.fromkeys(["distillation", "limbeck", *(name for name in methods if name), *export_tags(export)])
    )
    # What was measured is the float32 student: of other weights it would be a claim that nobody checked.
    measured = is_in_float32(export)
    index = _model_index(record, fields["pipeline_tag"], scores) if measured else []
    if index:
        types = [metric["type"] for result in index[0]["results"] for metric in result["metrics"]]
        fields |= {"metrics": list(dict.fromkeys(types)), "model-index": index}
    return dump_front_matter(fields)


def export_tags(export: Mapping[str, Any] | None) -> list[str]:
    """Return the tags of an export's format."""
    if export is None or not export.get("file"):
        return []
    return ["onnx", "int8"] if export["dtype"] == "int8" else ["onnx"]


def is_in_float32(export: Mapping[str, Any] | None) -> bool:
    """Return whether an export's weights are those that were measured; a student itself has them."""
    return export is None or export.get("dtype") == "float32"


def dump_front_matter(fields: Mapping[str, Any]) -> str:
    """Return fields as the YAML block at the head of a card."""
    # A width without end keeps every value on one line, so that none can look like the closing `---`.
    dumped = yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True, width=float("inf"))
    return f"---\n{dumped}---\n"


def hub_datasets(record: Mapping[str, Any]) -> list[str]:
    """Return the Hub data sets among the corpus sources (`hub:owner/name…`), without their configuration."""
    corpus = record.get("corpus")
    sources = corpus.get("sources") if isinstance(corpus, Mapping) else None
    found = [_HUB_CORPUS.fullmatch(str(source)) for source in sources or () if isinstance(source, str)]
    return list(dict.fromkeys(match[1] for match in found if match is not None))


def _model_index(record: Mapping[str, Any], task: str, scores: TaskScores | None) -> list[dict[str, Any]]:
    """Return the Hub's `model-index` with the figures that were measured, all as shares; empty without any."""
    results = [*_held_out_results(record, task), *(_task_results(scores) if scores is not None else [])]
    return [{"name": one_line(record.get("name")) or "student", "results": results}] if results else []


def _held_out_results(record: Mapping[str, Any], task: str) -> list[dict[str, Any]]:
    evaluation = record.get("evaluation")
    if not isinstance(evaluation, Mapping):
        return []
    agreement = evaluation.get("agreement") or {}
    retrieval = (evaluation.get("student") or {}).get("retrieval") or {}
    task_scores = evaluation.get("task") or {}
    metrics = [
        _metric("spearmanr", "Spearman agreement with the teacher", agreement.get("spearman")),
        _metric("mrr_at_10", "MRR@10 of finding a text's body by its summary", retrieval.get("mrr_at_10")),
        _metric("recall_at_1", "Recall@1 of finding a text's body by its summary", retrieval.get("recall_at_1")),
        _metric(str(task_scores.get("metric")), "Score on held-out rows", task_scores.get("student")),
    ]
    known = [metric for metric in metrics if metric is not None]
    dataset = {"name": "text held out from training", "type": "held-out"}
    return [{"task": {"type": task}, "dataset": dataset, "metrics": known}] if known else []


def _task_results(scores: TaskScores) -> list[dict[str, Any]]:
    results = []
    for row in scores.rows:
        how = "cosine of sentence vectors" if row.kind == "similarity" else f"fine-tuned, preset {scores.preset}"
        metric = _metric(row.hub_metric, f"{row.metric} ({how})", row.value)
        if metric is not None:
            dataset = {key: one_line(value) for key, value in row.dataset.items()}
            results.append({"task": {"type": _HUB_TASKS[row.kind]}, "dataset": dataset, "metrics": [metric]})
    return results


def _metric(kind: str, name: str, value: Any) -> dict[str, Any] | None:
    """Return one metric of the model index; None where it has no number."""
    if not isinstance(value, (int, float)) or value != value:
        return None
    return {"type": kind, "name": name, "value": round(float(value), 4)}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings in a sequence; empty for anything else."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return [item for item in value if isinstance(item, Mapping)] if is_list else []


CARD = "README.md"
_TEMPLATE = "model_card.md.j2"
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
            `limbeck.core.records.Run`.
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


# The cards of a run: of its student, and of every student that a stage made for itself.


def write_run_cards(record: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the card of a run's student, and those of its stages' own students, such as teacher assistants.

    Scores on tasks are in them where the run has been evaluated, so calling this again after an evaluation brings the
    cards up to date.

    Args:
        record: The run's record.
        folder: The run's folder.

    Returns:
        The paths of the cards.
    """
    students = [folder / RUN_STUDENT, *sorted((folder / STAGES).glob(f"*/{RUN_STUDENT}"))]
    return [
        write_model_card(record_of(student, record), student, scores=find_scores(student))
        for student in students
        if student.is_dir()
    ]


def find_record(student: Path) -> dict[str, Any]:
    """Return the record of the run that made a student, as far as it is about that student; empty where there is none.

    Args:
        student: The student's folder, in the run's folder or in that of a stage.
    """
    run = run_of(student)
    record = read_record(run) if run is not None else {}
    return record_of(student.resolve(), record) if record else {}


def run_of(student: Path) -> Path | None:
    """Return the folder of the run that made a student; None where no run did.

    Args:
        student: The student's folder, in the run's folder or in that of a stage.
    """
    student = student.resolve()
    if student.name != RUN_STUDENT or len(student.parents) < 3:
        return None
    run = student.parents[2] if student.parents[1].name == STAGES else student.parent
    return run if (run / RECORD).is_file() else None


def record_of(student: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's record as the card of one of its students tells it.

    A stage's own student has that stage alone, and was not measured beside the run's teacher.

    Args:
        student: The student's folder, by the name that the run gave it.
        record: The run's record.
    """
    folder = student.resolve().parent
    if folder.parent.name != STAGES:
        return {**record, "name": title_of(record.get("name"), folder)}
    name = title_of(record.get("name"), folder.parents[1])
    stages = [stage for stage in record.get("stages") or [] if isinstance(stage, Mapping)]
    number, _, title = folder.name.partition("-")
    index = int(number) - 1 if number.isdigit() else -1
    if not 0 <= index < len(stages):
        return {**record, "name": name}
    stage = stages[index]
    own = {key: value for key, value in stage.items() if key not in ("student", "teacher", "teacher_facts")}
    made: Mapping[str, Any] = stage.get("student") or {}
    facts = stage.get("teacher_facts")
    # The recipe's teacher, whose name on the Hub an old record leaves to be found, is not that of such a stage.
    own_teacher = {"hub_id": None, **(facts if isinstance(facts, Mapping) else {})}
    teacher = {"name_or_path": stage["teacher"], **own_teacher} if stage.get("teacher") else record.get("teacher")
    return {
        **record,
        "name": f"{name}, {title}",
        "teacher": teacher,
        "student": {**made, "head": _head(student)},
        "stages": [own],
        "untrained": None,
        "evaluation": None,
    }


def _head(student: Path) -> str | None:
    try:
        return head_of(load_config(student))
    except LimbeckError:
        return None
