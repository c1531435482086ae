"""The model card of a student: its facts from the run's record, and the cards of all students of a run."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from huggingface_hub import EvalResult, ModelCardData, try_to_load_from_cache

from limbeck.core import records
from limbeck.core.blocks import counted
from limbeck.core.escaping import one_line
from limbeck.core.exports import Export
from limbeck.core.kinds import own_kind_like
from limbeck.core.paths import STAGES, STUDENT, run_of_student
from limbeck.core.records import Run, Stage
from limbeck.errors import LimbeckError
from limbeck.evaluation.retrieval import ROLES
from limbeck.export.formats import FORMATS
from limbeck.kinds.scoring import METRIC_NAMES
from limbeck.models.card_facts import LICENSE_KEYS, card_fields, is_hub_name, single_language
from limbeck.models.heads import head_of
from limbeck.models.loading import load_config
from limbeck.models.sentence_reader import (
    is_sentence_folder,
    pooling_of_folder,
    sentence_pooling,
    without_unread_pooler,
)
from limbeck.models.sentences import SentencePooling, prompt_names
from limbeck.report.card import (
    HEADS,
    base_model_fields,
    card_text,
    folder_name,
    front_matter,
    hub_metric,
    reads_pairs,
    result_fields,
    short_name,
    usage_fields,
    write_card,
)
from limbeck.report.export_text import ExportRecord
from limbeck.report.layers import layer_rows
from limbeck.report.names import metric_name, title_of
from limbeck.report.quality import comparison_markdown, format_count
from limbeck.report.run_warnings import resembling_rows, skipped_text, untrained_rows, untrained_values
from limbeck.report.task_scores import TaskScores, find_scores, hub_results

RunRecord: TypeAlias = Mapping[str, Any] | Run
"""The record of a run, typed or as plain values."""
TEMPLATE = "student_card.md.j2"
_MOST_MODULES = 12
_READERS = {"tokens": "texts with other words", "positions": "longer texts", "segments": "pairs of texts"}
"""By the kind of rows of embeddings, the texts that read more of them."""
_HUB_CORPUS = re.compile(r"hub:([\w.-]+/[\w.-]+)(?:[:@#].*)?")
_BODY_BY_SUMMARY = "retrieving a text's body by its summary"


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
    card = _card(record, Path(folder), scores, export)
    return write_card(Path(folder), front_matter(card.data), TEMPLATE, card=card)


def model_card(
    record: RunRecord, folder: Path, *, scores: TaskScores | None = None, export: ExportRecord | None = None
) -> str:
    """Return the text of the card; the arguments are those of `write_model_card`."""
    card = _card(record, folder, scores, export)
    return card_text(front_matter(card.data), TEMPLATE, card=card)


def _card(record: RunRecord, folder: Path, scores: TaskScores | None, export: ExportRecord | None) -> "StudentCard":
    return StudentCard(Run.read(record), folder, scores, None if export is None else Export.read(export))


@dataclass(frozen=True)
class Untrained:
    """The tensors and rows of embeddings that no stage trained.

    Attributes:
        count: Number of tensors.
        modules: Names of the modules with these tensors, at most `_MOST_MODULES`.
        more: The number of further modules in words, to follow the names; empty for none.
        values: The origin of the tensors' values, in words.
        has_initial: Whether all of these tensors hold initial values.
        rows: Lines on rows of embeddings.
        needed_by: The texts that read rows with initial values, in words; empty for none.
    """

    count: int
    modules: list[str]
    more: str
    values: str
    has_initial: bool
    rows: list[str]
    needed_by: str


@dataclass(frozen=True)
class StudentCard:
    """The facts of a student's card.

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
    def title(self) -> str:
        """The title of the card."""
        return self.run.name or "Student"

    @property
    def data(self) -> ModelCardData:
        """The front matter."""
        usage = usage_fields(pooled=self.is_pooled, head=self.head_kind)
        sources = self.run.corpus.sources if self.run.corpus else []
        datasets = [match[1] for match in map(_HUB_CORPUS.fullmatch, sources) if match is not None]
        methods = [one_line(stage.method) for stage in self.run.stages]
        tags = ["distillation", "limbeck", *filter(None, methods), *export_tags(self.export)]
        results: list[EvalResult] = []
        # The measurements are of the float32 student: of other weights they would be a claim that nobody checked.
        if is_in_float32(self.export):
            results += _held_out_results(self.evaluation, usage["pipeline_tag"])
            results += _development_results(self.evaluation, usage["pipeline_tag"])
            results += hub_results(self.scores) if self.scores else ()
        return ModelCardData(
            **inherited_fields(self.run),
            **usage,
            **base_model_fields(self.hub_name),
            datasets=list(dict.fromkeys(datasets)) or None,
            tags=list(dict.fromkeys(tags)),
            **result_fields(results, self.run.name or "student"),
        )

    @property
    def evaluation(self) -> records.RunEvaluation:
        """Teacher beside student; empty where nothing was measured."""
        return self.run.evaluation or records.RunEvaluation()

    @property
    def comparison(self) -> str:
        """The table of teacher and student in Markdown; empty where nothing was measured."""
        return "" if self.evaluation.is_empty else comparison_markdown(self.evaluation)

    @property
    def is_measured(self) -> bool:
        """Whether the weights of the folder are those that were measured."""
        return is_in_float32(self.export) and not self.is_graph

    @property
    def is_pooled(self) -> bool:
        """Whether the folder also loads in sentence-transformers."""
        return is_sentence_folder(self.folder)

    @cached_property
    def sentence(self) -> SentencePooling | None:
        """How sentence vectors are made; None where nothing readable tells, and of a router."""
        if self.is_router or not self.is_pooled:
            return None
        try:
            return sentence_pooling(self.folder)
        except LimbeckError:  # The card is written of the rest.
            return None

    @property
    def pooling(self) -> str:
        """How sentence vectors are pooled: as the folder tells, else as they were measured, else by the mean."""
        try:
            pooling = pooling_of_folder(self.folder)
        except LimbeckError:  # The card is written of the rest.
            pooling = None
        if pooling is None:
            pooling = self.evaluation.settings.pooling
        return "cls" if pooling == "cls" else "mean"

    @property
    def prompts(self) -> dict[str, tuple[str, str]]:
        """By role the name and the text of the prompt that the folder has for it."""
        known = self.sentence.prompts if self.sentence is not None else {}
        prompts = {}
        for role in ROLES:
            names = [name for name in prompt_names(role) if name in known]
            if names:
                prompts[role] = (names[0], known[names[0]])
        return prompts

    @property
    def widths(self) -> list[int]:
        """The widths, besides the whole, at which stages taught the student's sentence vectors; the widest first."""
        widths = set()
        for stage in self.run.recipe.stages:
            truncate = stage.method.get("truncate")
            if not stage.student and isinstance(truncate, list):
                widths |= {width for width in truncate if type(width) is int}
        return sorted(widths, reverse=True)

    @property
    def chain(self) -> str | None:
        """How sentence vectors are made, where it takes more than pooling by the mean or the first token."""
        sentence = self.sentence
        if sentence is None:
            return None
        is_plain = not sentence.modules and sentence.pooling in ("mean", "cls")
        return None if is_plain else str(sentence)

    @property
    def head_kind(self) -> str:
        """The kind of the head; a folder that makes sentence vectors is exported without it."""
        head = self.run.student.head if self.export is None else self.export.head
        return head or ""

    @property
    def head(self) -> Mapping[str, str] | None:
        """The head, if there is one."""
        return HEADS.get(own_kind_like(self.head_kind))

    @property
    def has_development(self) -> bool:
        """Whether the rows that the first stage held out are development rows."""
        if any(scores.stage for scores in self.evaluation.development):
            return True
        if not self.run.recipe.stages:
            return False
        corpus = self.run.recipe.stages[0].corpus or self.run.recipe.corpus
        return corpus is not None and bool(corpus.development)

    @property
    def reads_pairs(self) -> bool | None:
        """Whether the rows of the last labelled stage were pairs of texts; None where nothing tells."""
        for stage in reversed(self.run.recipe.stages):
            corpus = stage.corpus or self.run.recipe.corpus
            if corpus is not None and corpus.task:
                return reads_pairs(corpus.task)
        return None

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
        teacher = self.run.teacher
        planned = self.run.recipe.teacher
        if "hub_id" in teacher.model_fields_set:
            return teacher.hub_id if teacher.hub_id and is_hub_name(teacher.hub_id) else None
        if planned.name and "/" in planned.name and is_hub_name(planned.name):
            return planned.name
        name = planned.model or teacher.name_or_path
        is_cached = is_hub_name(name) and isinstance(try_to_load_from_cache(name, "config.json"), str)
        return name if is_cached else None

    @property
    def teacher_name(self) -> str:
        """The teacher's name on the Hub, or the last part of its path."""
        if self.hub_name:
            return self.hub_name
        line = one_line(self.run.teacher.name_or_path)
        # `models/teacher` may be a name on the Hub or a relative path; the record has its kind.
        if self.run.teacher.kind == "folder":
            return folder_name(line)
        return short_name(line)

    @property
    def layers(self) -> list[tuple[Stage, list[tuple[str, str, str]]]]:
        """The layer mappings of the stages that have one."""
        mappings = [(stage, layer_rows(stage)) for stage in self.run.stages]
        return [(stage, rows) for stage, rows in mappings if rows]

    @property
    def citations(self) -> list[records.Citation]:
        """The papers of the methods, each once."""
        citations: list[records.Citation] = []
        for stage in self.run.stages:
            if stage.citation is not None and stage.citation not in citations:
                citations.append(stage.citation)
        return citations

    @property
    def budget(self) -> str:
        """The cost of training."""
        return budget(self.run)

    @property
    def skipped(self) -> dict[str, float]:
        """Text that was skipped or repaired, by the reason."""
        return skipped_text(self.run.corpus.report) if self.run.corpus else {}

    @property
    def resembling(self) -> list[str]:
        """Lines on rows to score on that are like a training row, without quoting any."""
        return list(resembling_rows(self.run.corpus.report, quoted=False)) if self.run.corpus else []

    @property
    def hardware(self) -> str:
        """The machine in one line."""
        hardware = self.run.hardware
        # Older records have the memory in words.
        memory = one_line(getattr(hardware, "memory", ""))
        if hardware.memory_bytes is not None:
            memory = f"{hardware.memory_bytes / 2**30:.0f} GiB"
        device = "" if hardware.device == "cpu" else hardware.device
        cores = f"{hardware.cores} cores" if hardware.cores else ""
        return ", ".join(filter(None, (device, hardware.cpu, cores, memory)))

    @property
    def untrained(self) -> Untrained:
        """The tensors and rows of embeddings that no stage trained."""
        names = without_unread_pooler(_untrained_names(self.run), self.folder)
        # Exported graphs have no pooler.
        if self.is_graph:
            names = [name for name in names if not name.startswith("pooler.")]
        modules = records.modules_of(names)
        more = ""
        if len(modules) > _MOST_MODULES:
            more = f", and {counted(len(modules) - _MOST_MODULES, 'more module')}"
        tables = self.run.untrained.rows if self.run.untrained else []
        readers = [_READERS[table.kind] for table in tables if _holds_initial(self.run, table)]
        return Untrained(
            count=len(names),
            modules=modules[:_MOST_MODULES],
            more=more,
            values=untrained_values(self.run, names),
            has_initial=not any(self.run.holds_teachers(name) for name in names),
            rows=list(untrained_rows(self.run)),
            needed_by=" or ".join(readers),
        )


def _holds_initial(run: Run, table: records.UnreadRows) -> bool:
    """Return whether rows of embeddings hold initial values that some texts would read."""
    return table.kind in _READERS and not run.holds_teachers(table)


def _untrained_names(run: Run) -> list[str]:
    """Return the tensors that no stage trained; of an older record those that every stage left out."""
    if run.untrained is not None:
        return run.untrained.names
    if not run.stages:
        return []
    return [name for name in run.stages[0].untrained if all(name in stage.untrained for stage in run.stages)]


def budget(run: Run) -> str:
    """Return the cost of training in one line: steps, tokens, hours and machine; empty if nothing is known."""
    steps = sum(stage.steps or 0 for stage in run.stages)
    tokens = sum(stage.tokens or 0 for stage in run.stages)
    seconds = sum(stage.seconds or 0 for stage in run.stages)
    parts = []
    if steps:
        parts.append(counted(steps, "step"))
    if tokens:
        parts.append(f"{format_count(tokens)} tokens")
    if seconds >= 3600:
        parts.append(f"{seconds / 3600:.1f} hours of training")
    elif seconds >= 60:
        parts.append(f"{seconds / 60:.1f} minutes of training")
    elif seconds:
        parts.append(f"{seconds:.1f} seconds of training")
    line = ", ".join(parts)
    is_on_processor = all((stage.device or "cpu") == "cpu" for stage in run.stages)
    device = run.hardware.cpu if is_on_processor else run.hardware.device
    if line and device not in (None, "", "cpu"):
        return f"{line} on {device}"
    return line


def inherited_fields(run: Run) -> dict[str, Any]:
    """Return `language` and `license` (with `license_name` and `license_link`) of the front matter.

    The student's facts in the record go first, then those of the teacher's card. For a run of an earlier
    version, which recorded nothing of that, the card is read where the teacher is on this machine.
    """
    teacher_card = run.teacher.card
    if teacher_card is None:
        planned = run.recipe.teacher
        name = run.teacher.name_or_path
        # The recipe may call it by another name than that of its place.
        place = planned.model if name == (planned.name or "") else name
        teacher_card = records.CardFields.read(card_fields(place) if place else {})
    fields = {}
    language = single_language(run.language or teacher_card.language)
    if language is not None:
        fields["language"] = one_line(language)
    owner: records.CardFields = teacher_card if run.license is None else run
    for key in LICENSE_KEYS:
        value = one_line(getattr(owner, key))
        if value:
            fields[key] = value
    return fields


def export_tags(export: Export | None) -> list[str]:
    """Return the tags of an export's format."""
    if export is None or export.format not in FORMATS:
        return []
    return list(FORMATS[export.format].tags)


def is_in_float32(export: Export | None) -> bool:
    """Return whether an export's weights are those that were measured; a student itself has them."""
    return export is None or export.dtype == "float32"


def _held_out_results(evaluation: records.RunEvaluation, task_type: str) -> Iterator[EvalResult]:
    """Yield the figures on held-out text as the Hub has them, all as shares."""
    agreement = evaluation.agreement or records.Agreement()
    retrieval = evaluation.student.retrieval or records.Retrieval()
    asymmetric = evaluation.asymmetric or records.Retrieval()
    figures = [
        ("spearmanr", "Spearman agreement with the teacher", agreement.spearman),
        ("mrr_at_10", f"MRR@10 ({_BODY_BY_SUMMARY})", retrieval.mrr_at_10),
        ("recall_at_1", f"Recall@1 ({_BODY_BY_SUMMARY})", retrieval.recall_at_1),
        ("ndcg_at_10", f"nDCG@10 ({_BODY_BY_SUMMARY})", retrieval.ndcg_at_10),
        ("ndcg_at_10", "nDCG@10 (as above, with bodies encoded by the teacher)", asymmetric.ndcg_at_10),
    ]
    for metric, name, value in figures:
        if value is not None:
            yield EvalResult(
                task_type=task_type,
                dataset_type="held-out",
                dataset_name="text held out from training",
                metric_type=metric,
                metric_name=name,
                metric_value=round(float(value), 4),
            )


def _development_results(evaluation: records.RunEvaluation, task_type: str) -> Iterator[EvalResult]:
    """Yield the scores on development rows; held-out training rows, which the teacher may have seen, give none."""
    for scores in evaluation.development:
        for metric, value in scores.student.items():
            if metric in METRIC_NAMES and value is not None:
                yield EvalResult(
                    task_type=task_type,
                    dataset_type=one_line(scores.task),
                    dataset_name=one_line(scores.task),
                    dataset_split=one_line(scores.split),
                    metric_type=hub_metric(metric),
                    metric_name=f"{metric_name(metric)} on development rows",
                    metric_value=round(float(value), 4),
                )


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
    if folder is None:
        return None
    run = records.load(Run, folder)
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
        return run.model_copy(update={"name": title_of(run.name, folder)})
    name = title_of(run.name, folder.parents[1])
    number, _, title = folder.name.partition("-")
    place = int(number) if number.isdigit() else 0
    if not 1 <= place <= len(run.stages):
        return run.model_copy(update={"name": name})
    return _record_of_stage(run, run.stages[place - 1], f"{name}, {title}", _head_kind(student))


def _record_of_stage(run: Run, stage: Stage, name: str, head: str | None) -> Run:
    """Return a run's record as if its one stage were all of it."""
    teacher = run.teacher
    if stage.teacher:
        # The recipe's teacher, whose name on the Hub an old record leaves to be found, is not that of such a stage.
        facts = stage.teacher_facts.to_dict() if stage.teacher_facts else {}
        teacher = records.Teacher.read({"name_or_path": stage.teacher, "hub_id": None, **facts})
    student = (stage.student or records.Student()).model_copy(update={"head": head})
    return run.model_copy(
        update={
            "name": name,
            "teacher": teacher,
            "student": student,
            "stages": [stage.model_copy(update={"student": None, "teacher": None})],
            "untrained": None,
            "evaluation": None,
        }
    )


def _head_kind(student: Path) -> str | None:
    try:
        return head_of(load_config(student))
    except LimbeckError:
        return None
