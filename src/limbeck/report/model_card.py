"""Model cards: `README.md` of students and exports, made from the run's record in the Hub's format."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from huggingface_hub import ModelCard, try_to_load_from_cache

from limbeck.core import files, records
from limbeck.core.blocks import counted
from limbeck.core.escaping import code_block, escape_markdown, one_line, printable_values
from limbeck.core.exports import Export
from limbeck.core.kinds import KINDS
from limbeck.core.paths import MODEL_CARD, STAGES, STUDENT, run_of_student
from limbeck.core.records import Run, Stage
from limbeck.errors import LimbeckError, RecipeError
from limbeck.evaluation.metrics import METRICS
from limbeck.evaluation.retrieval import ROLES
from limbeck.models import heads, loading, locating
from limbeck.models.card_facts import LICENSE_KEYS, card_fields, is_hub_name, single_language
from limbeck.models.locating import locate_model
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.sentences import SentencePooling, prompt_names
from limbeck.report import card_parts, findings
from limbeck.report.card_parts import HEADS, ExportRecord, TaskScores, find_scores
from limbeck.report.quality import comparison_markdown, format_count, metric_name
from limbeck.report.run import resembling, skipped, untrained_rows

RunRecord: TypeAlias = Mapping[str, Any] | Run
"""The record of a run, typed or as plain values."""
_POOLING_KEYS = ("pooling_mode", "pooling_mode_cls_token", "pooling_mode_mean_tokens")
_GROUPS_SHOWN = 12
_READ_BY = {"tokens": "texts with other words", "positions": "longer texts", "segments": "pairs of texts"}
"""By the kind of rows of embeddings, the texts that read more of them."""
_PAIR = re.compile(r"(.+)_(\d+)_(\d+)")


def write_model_card(
    record: RunRecord, folder: Path | str, *, scores: TaskScores | None = None, export: ExportRecord | None = None
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
    path = Path(folder) / MODEL_CARD
    path.write_text(model_card(record, Path(folder), scores=scores, export=export), encoding="utf-8")
    return path


def model_card(
    record: RunRecord, folder: Path, *, scores: TaskScores | None = None, export: ExportRecord | None = None
) -> str:
    """Return the text of the card; the arguments are those of `write_model_card`."""
    card = Card(Run.read(record), folder, scores, None if export is None else Export.read(export))
    run, export = card.run, card.export
    evaluation = run.evaluation
    cited = [stage.citation for stage in run.stages if stage.citation is not None]
    template = card_parts.card_templates().get_template("model_card.md.j2")
    body = template.render(
        card=card,
        run=run,
        scores=scores,
        comparison="" if evaluation is None or evaluation.is_empty else comparison_markdown(evaluation),
        is_measured=is_in_float32(export) and not card.is_graph,
        pooling=_pooling(card),
        layers=[(stage, rows) for stage in run.stages if (rows := layer_rows(stage))],
        citations=[citation for place, citation in enumerate(cited) if citation not in cited[:place]],
        budget=budget(run),
        untrained=_untrained(card),
        skipped=skipped(run.corpus.report) if run.corpus else {},
        resembling=[*resembling(run.corpus.report, quoted=False)] if run.corpus else [],
        hardware=_hardware(run.hardware),
    )
    return front_matter(card) + "\n" + re.sub(r"\n{3,}", "\n\n", body).strip() + "\n"


@dataclass(frozen=True)
class Card:
    """The facts of a card, as its template and its front matter have them.

    Attributes:
        run: The run's record.
        folder: Of the student or the export.
        scores: The student's scores on tasks, if it was evaluated.
        export: The record of the export, for the card of one.
    """

    run: Run
    folder: Path
    scores: TaskScores | None = None
    export: Export | None = None

    @property
    def is_pooled(self) -> bool:
        """Whether the folder also loads in sentence-transformers."""
        return (self.folder / "modules.json").is_file()

    @cached_property
    def sentence(self) -> SentencePooling | None:
        """How sentence vectors are made; None where nothing readable says it, and of a router."""
        try:
            return sentence_pooling(self.folder) if self.is_pooled and not self.is_router else None
        except LimbeckError:  # A card is written of what can be read.
            return None

    @property
    def prompts(self) -> dict[str, tuple[str, str]]:
        """By role the name and the text of the prompt that the folder has for it."""
        known = self.sentence.prompts if self.sentence is not None else {}
        found = {role: next((name for name in prompt_names(role) if name in known), None) for role in ROLES}
        return {role: (name, known[name]) for role, name in found.items() if name is not None}

    @property
    def widths(self) -> list[int]:
        """The widths, besides the whole, at which stages taught the student's sentence vectors; the widest first."""
        given = [stage.method.get("truncate") for stage in self.run.recipe.stages if not stage.student]
        return sorted({width for each in given if isinstance(each, list) for width in each if type(width) is int})[::-1]

    @property
    def chain(self) -> str | None:
        """How sentence vectors are made, where it takes more than pooling by the mean or the first token."""
        said = self.sentence
        plain = said is None or (not said.modules and said.pooling in ("mean", "cls"))
        return None if plain else str(said)

    @property
    def head_kind(self) -> str:
        """The kind of the head; a folder that makes sentence vectors is exported without it."""
        return (self.run.student.head if self.export is None else self.export.head) or ""

    @property
    def has_development(self) -> bool:
        """Whether the rows that the first stage held out are development rows."""
        planned, found = self.run.recipe, (self.run.evaluation or records.RunEvaluation()).development
        corpora = [stage.corpus or planned.corpus for stage in planned.stages][:1]
        return any(corpus.development for corpus in corpora if corpus) or any(scores.stage for scores in found)

    @property
    def reads_pairs(self) -> bool | None:
        """Whether the rows of the last labelled stage were pairs of texts; None where nothing says it."""
        planned = self.run.recipe
        tasks = [corpus.task for stage in planned.stages if (corpus := stage.corpus or planned.corpus) and corpus.task]
        return card_parts.reads_pairs(tasks[-1]) if tasks else None

    @property
    def head(self) -> Mapping[str, str] | None:
        """The head, if there is one."""
        return HEADS.get(self.head_kind)

    @property
    def is_graph(self) -> bool:
        """Whether the folder holds a graph, and no weights of PyTorch."""
        return self.export is not None and bool(self.export.file)

    @property
    def is_router(self) -> bool:
        """Whether the folder reads documents by another model than queries."""
        return self.export is not None and bool(self.export.documents)

    @property
    def hub_name(self) -> str | None:
        """The teacher's name on the Hub as the run recorded it; a folder has none, whatever it is called.

        Of a run of an earlier version, which did not record it, it is the name of the form `owner/model` that the
        recipe gives the teacher, else its `model` where that is in the Hub's cache on this machine.
        """
        teacher, asked = self.run.teacher, self.run.recipe.teacher
        if "hub_id" in teacher.model_fields_set:
            return teacher.hub_id if teacher.hub_id and is_hub_name(teacher.hub_id) else None
        if asked.name and "/" in asked.name and is_hub_name(asked.name):
            return asked.name
        name = asked.model or teacher.name_or_path
        is_cached = is_hub_name(name) and isinstance(try_to_load_from_cache(name, "config.json"), str)
        return name if is_cached else None

    @property
    def teacher_name(self) -> str:
        """The teacher's name on the Hub, or the last part of its path."""
        teacher = self.run.teacher
        line = one_line(teacher.name_or_path)
        # Of a folder that was given relative to another one than this, nothing else tells that it is a path.
        return self.hub_name or (
            card_parts.folder_name(line) if teacher.kind == "folder" else card_parts.short_name(line)
        )


def _pooling(card: Card) -> str:
    """Return how sentence vectors are pooled: as the folder says, else as they were measured, else mean."""
    said = files.read_json(card.folder / "1_Pooling" / "config.json")
    if any(key in said for key in _POOLING_KEYS):
        return "cls" if said.get("pooling_mode_cls_token") or said.get("pooling_mode") == "cls" else "mean"
    measured = card.run.evaluation.settings.pooling if card.run.evaluation else None
    return measured if measured in ("mean", "cls") else "mean"


def _untrained(card: Card) -> dict[str, Any]:
    """Return what no stage trained: tensors, rows of embeddings, and what holds the teacher's values."""
    untrained, stages = card.run.untrained, card.run.stages
    if untrained is not None:
        names = untrained.names
    else:  # An older record: what every stage left out.
        names = [name for name in stages[0].untrained if all(name in s.untrained for s in stages)] if stages else []
    names = records.read_by_student(names, card.folder)
    names = [name for name in names if not (card.is_graph and name.startswith("pooler."))]  # Graphs have none.
    groups = records.modules_of(names)
    more = f", and {counted(len(groups) - _GROUPS_SHOWN, 'more module')}" if len(groups) > _GROUPS_SHOWN else ""
    taken = sum(map(card.run.holds_teachers, names))
    rows = [table for table in (untrained.rows if untrained else []) if not card.run.holds_teachers(table)]
    return {
        "count": len(names),
        "groups": groups[:_GROUPS_SHOWN],
        "more": more,
        "from_teacher": taken,
        "rows": list(untrained_rows(card.run)),
        "needed_by": " or ".join(_READ_BY[table.kind] for table in rows if table.kind in _READ_BY),
    }


def _hardware(found: records.Hardware) -> str:
    """Return the machine in one line."""
    memory = "" if found.memory_bytes is None else f"{found.memory_bytes / 2**30:.0f} GiB"
    cores = f"{found.cores} cores" if found.cores else ""
    device = "" if found.device == "cpu" else found.device
    # Older records have the memory in words.
    return ", ".join(filter(None, (device, found.cpu, cores, memory or one_line(getattr(found, "memory", "")))))


def budget(run: Run) -> str:
    """Return what training took in one line: steps, tokens, hours and where; empty if nothing is known."""
    steps, tokens, seconds = (
        sum(getattr(stage, name) or 0 for stage in run.stages) for name in ("steps", "tokens", "seconds")
    )
    parts = [counted(steps, "step") if steps else "", f"{format_count(tokens)} tokens" if tokens else ""]
    if seconds:
        unit, size = ("hours", 3600) if seconds >= 3600 else ("minutes", 60) if seconds >= 60 else ("seconds", 1)
        parts.append(f"{seconds / size:.1f} {unit} of training")
    line = ", ".join(filter(None, parts))
    on_processor = all((stage.device or "cpu") == "cpu" for stage in run.stages)
    device = run.hardware.cpu if on_processor else run.hardware.device
    return f"{line} on {device}" if line and device not in (None, "", "cpu") else line


def layer_rows(stage: Stage) -> list[tuple[str, str, str]]:
    """Return a stage's layer mapping: student layers, teacher layers, terms; layer 0 is the embedding.

    A record that does not hold it may have it in the names of its terms (`hidden_2_6`).
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    for link in stage.layers:
        student, teacher = (", ".join(map(str, side)) for side in (link.student, link.teacher))
        found.setdefault((student, teacher), {}).update(dict.fromkeys(link.terms))
    for name in stage.final_terms if not found else ():
        if match := _PAIR.fullmatch(name):
            found.setdefault((match[2], match[3]), {})[match[1]] = None
    return [(student, teacher, ", ".join(terms)) for (student, teacher), terms in found.items() if student and teacher]


# The record's facts of the teacher: its name on the Hub, its licence, and a single language.


def inherited_fields(run: Run) -> dict[str, str]:
    """Return `license` (with `license_name` and `license_link`) and `language` of the front matter.

    The student's facts in the record go first, then those of the teacher's card. For a run of an earlier
    version, which recorded nothing of that, the card is read where the teacher is on this machine.
    """
    theirs, asked = run.teacher.card, run.recipe.teacher
    if theirs is None:
        name = run.teacher.name_or_path
        # The recipe may call it by another name than that of its place.
        place = asked.model if name == (asked.name or "") else name
        theirs = records.CardFields.read(card_fields(place) if place else {})
    owner = theirs if run.license is None else run
    found = {key: value for key in LICENSE_KEYS if (value := getattr(owner, key)) is not None}
    language = single_language(run.language or theirs.language)
    return found | ({"language": language} if language is not None else {})


# The Hub's front matter: the YAML block at the head of a model card.
#
# Everything in it comes from a run's record, so nothing in it is trusted: it is written by a YAML library, on one
# line a value, and what is not known is left out rather than guessed.


_HUB_METRICS = {
    **dict.fromkeys(("micro_f1", "macro_f1", "f1_answer", "f1_entity"), "f1"),
    "precision_entity": "precision",
    "recall_entity": "recall",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}
_HUB_CORPUS = re.compile(r"hub:([\w.-]+/[\w.-]+)(?:[:@#].*)?")


def front_matter(card: Card) -> str:
    """Return the front matter of a student's card, `---` lines included."""
    inherited = {key: one_line(value) for key, value in inherited_fields(card.run).items()}
    fields: dict[str, Any] = {key: inherited[key] for key in ("language", *LICENSE_KEYS) if inherited.get(key)}
    fields |= usage_fields(pooled=card.is_pooled, head=card.head)
    if card.hub_name:
        # The Hub has no word for a distilled model; of those it has, this is the one for weights that were trained on.
        fields |= {"base_model": card.hub_name, "base_model_relation": "finetune"}
    sources = card.run.corpus.sources if card.run.corpus else ()
    if datasets := [match[1] for match in map(_HUB_CORPUS.fullmatch, sources) if match is not None]:
        fields["datasets"] = list(dict.fromkeys(datasets))
    methods = filter(None, (one_line(stage.method) for stage in card.run.stages))
    fields["tags"] = list(dict.fromkeys(["distillation", "limbeck", *methods, *export_tags(card.export)]))
    # The measurements are of the float32 student: of other weights they would be a claim that nobody checked.
    results = [
        *_held_out_results(card.run, fields["pipeline_tag"]),
        *_development_results(card.run, fields["pipeline_tag"]),
        *(task_results(card.scores) if card.scores else ()),
    ]
    if results and is_in_float32(card.export):
        types = dict.fromkeys(metric["type"] for result in results for metric in result["metrics"])
        index = [{"name": one_line(card.run.name) or "student", "results": results}]
        fields |= {"metrics": list(types), "model-index": index}
    return dump_front_matter(fields)


def usage_fields(*, pooled: bool, head: Mapping[str, str] | None) -> dict[str, str]:
    """Return the library and the task of a model that makes sentence vectors, has a head, or neither."""
    plain = "sentence-similarity" if pooled else "feature-extraction"
    return {
        "library_name": "sentence-transformers" if pooled and head is None else "transformers",
        "pipeline_tag": plain if head is None else head["pipeline_tag"],
    }


def export_tags(export: Export | None) -> list[str]:
    """Return the tags of an export's format."""
    if export is None or not export.file:
        return []
    return ["onnx", "int8"] if export.dtype == "int8" else ["onnx"]


def is_in_float32(export: Export | None) -> bool:
    """Return whether an export's weights are those that were measured; a student itself has them."""
    return export is None or export.dtype == "float32"


def dump_front_matter(fields: Mapping[str, Any]) -> str:
    """Return fields as the YAML block at the head of a card."""
    # A width without end keeps every value on one line, so that none can look like the closing `---`.
    dumped = yaml.safe_dump(printable_values(fields), sort_keys=False, allow_unicode=True, width=float("inf"))
    return f"---\n{dumped}---\n"


def _held_out_results(run: Run, task: str) -> Iterator[dict[str, Any]]:
    """Return the figures of the run's evaluation for the Hub's `model-index`, all as shares."""
    found = run.evaluation or records.RunEvaluation()
    agreement, retrieval = found.agreement or records.Agreement(), found.student.retrieval or records.Retrieval()
    known = [
        *_metric("spearmanr", "Spearman agreement with the teacher", agreement.spearman),
        *_metric("mrr_at_10", "MRR@10 (retrieving a text's body by its summary)", retrieval.mrr_at_10),
        *_metric("recall_at_1", "Recall@1 (retrieving a text's body by its summary)", retrieval.recall_at_1),
        *_metric("ndcg_at_10", "nDCG@10 (retrieving a text's body by its summary)", retrieval.ndcg_at_10),
    ]
    if found.asymmetric is not None:
        known += _metric(
            "ndcg_at_10", "nDCG@10 (as above, with bodies encoded by the teacher)", found.asymmetric.ndcg_at_10
        )
    if known:
        dataset = {"name": "text held out from training", "type": "held-out"}
        yield {"task": {"type": task}, "dataset": dataset, "metrics": known}


def _development_results(run: Run, task: str) -> Iterator[dict[str, Any]]:
    """Return the scores on development rows; of held-out rows the teacher may have been trained on, there are none."""
    for scores in (run.evaluation or records.RunEvaluation()).development:
        known = [
            each
            for metric, value in scores.student.items()
            if metric in METRICS
            for each in _metric(_HUB_METRICS.get(metric, metric), f"{metric_name(metric)} on development rows", value)
        ]
        if known:
            dataset = {"name": one_line(scores.task), "type": one_line(scores.task), "split": one_line(scores.split)}
            yield {"task": {"type": task}, "dataset": dataset, "metrics": known}


def task_results(scores: TaskScores) -> Iterator[dict[str, Any]]:
    """Return scores on tasks for the Hub's `model-index`, all as shares."""
    for row in scores.rows:
        kind, metric = str(row.column.kind), row.column.metric
        how = "as it is" if scores.as_is else f"fine-tuned, preset {scores.preset}"
        how = "cosine of sentence vectors" if KINDS[kind].of_vectors else how
        known = _metric(_HUB_METRICS.get(metric, metric), f"{metric_name(metric)} ({how})", row.student.mean / 100)
        dataset = {key: one_line(value) for key, value in row.dataset.items()}
        vectors = {"similarity": "sentence-similarity", "retrieval": "information-retrieval"}
        task = vectors[kind] if KINDS[kind].of_vectors else HEADS[kind]["pipeline_tag"]
        yield {"task": {"type": task}, "dataset": dataset, "metrics": known}


def _metric(kind: str, name: str, value: float | None) -> list[dict[str, Any]]:
    """Return one metric of the model index; none without a number."""
    return [] if value is None else [{"type": kind, "name": name, "value": round(float(value), 4)}]


# The cards of a run: of its student, and of every student that a stage made for itself.


def write_run_cards(record: RunRecord, folder: Path) -> list[Path]:
    """Write the card of a run's student, and those of its stages' own students, such as teacher assistants.

    Scores on tasks are in them where the run has been evaluated, so calling this again after an evaluation brings the
    cards up to date.

    Args:
        record: The run's record.
        folder: The run's folder.

    Returns:
        The paths of the cards.
    """
    run = Run.read(record)
    students = [folder / STUDENT, *sorted((folder / STAGES).glob(f"*/{STUDENT}"))]
    return [
        write_model_card(record_of(student, run), student, scores=find_scores(student))
        for student in students
        if student.is_dir()
    ]


def find_record(student: Path) -> Run | None:
    """Return the record of the run that made a student, as far as it is about that student; None where there is none.

    Args:
        student: The student's folder, in the run's folder or in that of a stage.
    """
    folder = run_of_student(student)
    run = records.load(Run, folder) if folder is not None else Run()
    return None if run.is_empty else record_of(student.resolve(), run)


def record_of(student: Path, run: Run) -> Run:
    """Return a run's record as the card of one of its students has it.

    A stage's own student has that stage alone, and was not measured beside the run's teacher.

    Args:
        student: The student's folder, by the name that the run gave it.
        run: The run's record.
    """
    folder = student.resolve().parent
    if folder.parent.name != STAGES:
        return run.model_copy(update={"name": findings.title_of(run.name, folder)})
    name = findings.title_of(run.name, folder.parents[1])
    number, _, title = folder.name.partition("-")
    index = int(number) - 1 if number.isdigit() else -1
    if not 0 <= index < len(run.stages):
        return run.model_copy(update={"name": name})
    stage = run.stages[index]
    teacher = run.teacher
    if stage.teacher:
        # The recipe's teacher, whose name on the Hub an old record leaves to be found, is not that of such a stage.
        facts = stage.teacher_facts.to_dict() if stage.teacher_facts else {}
        teacher = records.Teacher.read({"name_or_path": stage.teacher, "hub_id": None, **facts})
    made = (stage.student or records.Student()).model_copy(update={"head": _head(student)})
    own = stage.model_copy(update={"student": None, "teacher": None})
    changed = {"name": f"{name}, {title}", "teacher": teacher, "student": made, "stages": [own]}
    return run.model_copy(update={**changed, "untrained": None, "evaluation": None})


def _head(student: Path) -> str | None:
    try:
        return heads.head_of(loading.load_config(student))
    except LimbeckError:
        return None


# The card of an export: that of the run that made the student, else the student's own with a section added.


def card_writer(name: str, evaluation: Path | None = None) -> Callable[[Path, Mapping[str, Any]], None]:
    """Return what writes the card of an export.

    Args:
        name: The student, as the user named it.
        evaluation: Folder of an evaluation with the student's scores; None looks for one in the run's folder.

    Raises:
        RecipeError: if the evaluation that is named has no scores of the student.
    """
    located = locate_model(name)
    student = Path(located).expanduser()
    record = find_record(student) if student.is_dir() else None
    if evaluation is not None and record is None:
        raise RecipeError(
            f"--evaluation is for the card of a run's student, and '{name}' does not belong to a run; leave it out."
        )
    scores = find_scores(student, evaluation) if record is not None else None

    def write(folder: Path, export: Mapping[str, Any]) -> None:
        if record is not None:
            write_model_card(record, folder, scores=scores, export=export)
        else:
            (folder / MODEL_CARD).write_text(card_without_run(located, export), encoding="utf-8")

    return write


def run_problem(name: str) -> str | None:
    """Say in a line that the card cannot tell of the run that made a student, since its record is damaged.

    Args:
        name: The student, as the user named it.
    """
    student = Path(locate_model(name)).expanduser()
    run = run_of_student(student) if student.is_dir() else None
    damage = records.record_damage(run) if run is not None else None
    return None if damage is None else f"{damage} The model card is made without it."


def card_without_run(located: str, record: ExportRecord) -> str:
    """Return the card of a model that no run on this machine made: its own one, where it has one, and what is new.

    Args:
        located: The model, as it was located.
        record: Of the export.
    """
    export, resolved = Export.read(record), locating.resolve_model(located)
    own = _own_card(Path(resolved)) if locating.is_local(resolved) else None
    if own is not None:
        fields, text = own
        if not is_in_float32(export):  # Its scores are those of the source.
            fields = {key: value for key, value in fields.items() if key not in ("model-index", "metrics")}
    else:
        fields = dict(usage_fields(pooled=bool(export.pooling), head=HEADS.get(export.head or "")))
        if not locating.is_local(resolved):
            quantised = {"base_model_relation": "quantized"} if export.dtype == "int8" else {}
            fields |= {"base_model": resolved, **quantised}
        text = f"# {escape_markdown(export.source.replace('/', ' / '))}"
    fields["tags"] = list(dict.fromkeys([*(fields.get("tags") or []), *export_tags(export)])) or None
    front = dump_front_matter({key: value for key, value in fields.items() if value})
    parts = [f"{front}\n{text.strip()}", "## This export", card_parts.export_part(export)]
    if export.file:
        note = "This folder holds the graph and no PyTorch weights. Replace `path/to/student` with it."
        parts += [note, code_block(card_parts.onnx_usage(export), "python")]
    if export.documents:
        parts += ["## How to use it", card_parts.router_usage(export)]
    return "\n\n".join(parts) + "\n"


def _own_card(folder: Path) -> tuple[dict[str, Any], str] | None:
    try:
        card = ModelCard.load(folder / MODEL_CARD, ignore_metadata_errors=True)
    except Exception:  # Missing, or anybody's text: the export is described all the same.
        return None
    return card.data.to_dict(), card.text
