"""The model card of a student: its facts from the run's record, which a template puts into words."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from huggingface_hub import EvalResult, ModelCardData, try_to_load_from_cache

from limbeck.core import markdown, records
from limbeck.core.escaping import one_line
from limbeck.core.exports import Export
from limbeck.core.files import atomic_text, writing
from limbeck.core.kinds import own_kind_like
from limbeck.core.paths import MODEL_CARD
from limbeck.core.records import Run
from limbeck.errors import LimbeckError
from limbeck.evaluation.retrieval import ROLES
from limbeck.models.card_facts import LICENSE_KEYS, card_fields, is_hub_name, single_language
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
    export_tags,
    is_in_float32,
    reads_pairs,
    result_fields,
    usage_fields,
)
from limbeck.report.card_templates import name_in_card
from limbeck.report.export_text import ExportRecord
from limbeck.report.gains import gain_sentences
from limbeck.report.languages import FEW_TEXTS, NOTE, has_rough_figures, languages_table
from limbeck.report.names import folder_name
from limbeck.report.quality import comparison_markdown, comparison_rows, format_count
from limbeck.report.quality_notes import reasons_against, score_warnings
from limbeck.report.reliable import reliable_figures
from limbeck.report.student_results import development_results, held_out_results, router_results
from limbeck.report.task_scores import TaskScores, hub_results
from limbeck.report.text_size import fitted_size, has_development_rows, held_out_size, trained_size

RunRecord: TypeAlias = Mapping[str, Any] | Run
"""The record of a run, typed or as plain values."""
_READERS = {"tokens": "texts with other words", "positions": "longer texts", "segments": "pairs of texts"}
"""Texts that read rows of embeddings which training may not have read, by the kind of these rows."""
_QUOTED = re.compile("'([^']+)'")
"""A quoted name or path in a sentence."""
_HUB_CORPUS = re.compile(r"hub:([\w.-]+/[\w.-]+)(?:[:@#].*)?")
"""A source of text on the Hub, such as `hub:owner/data_set:train`; the group is the name of the data set."""


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

    Raises:
        OutputError: if it cannot be written.
    """
    path = Path(folder) / MODEL_CARD
    text = model_card(record, Path(folder), scores=scores, export=export)
    with writing(path):
        atomic_text(path, text)
    return path


def model_card(
    record: RunRecord, folder: Path, *, scores: TaskScores | None = None, export: ExportRecord | None = None
) -> str:
    """Return the text of the card; the arguments are those of `write_model_card`."""
    export_record = None if export is None else Export.read(export)
    card = StudentCard(Run.read(record), folder, scores, export_record)
    return card_text(card.data, "student_card.md.j2", card=card)


def without_paths(sentence: str) -> str:
    """Return a sentence whose quoted paths are shortened to their last part."""
    return _QUOTED.sub(lambda quoted: f"'{name_in_card(quoted[1])}'", sentence)


@dataclass(frozen=True)
class StudentCard:
    """The facts of a student's card; `student_card.md.j2` reads them.

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
        """The front matter: facts that the student inherits, its use, its teacher, its text, tags and results."""
        usage = usage_fields(pooled=self.is_pooled, head=self.head_kind)
        methods = [one_line(stage.method) for stage in self.run.stages if one_line(stage.method)]
        tags = ["distillation", "limbeck", *methods, *export_tags(self.export)]
        return ModelCardData(
            **inherited_fields(self.run),
            **usage,
            **base_model_fields(self.hub_name),
            datasets=self._datasets or None,
            tags=list(dict.fromkeys(tags)),  # Each once: several stages may have the same method.
            **result_fields(self._results(usage["pipeline_tag"]), self.run.name or "student"),
        )

    @property
    def _datasets(self) -> list[str]:
        """The names of the data sets on the Hub that text was read from, each once."""
        if self.run.corpus is None:
            return []
        names: dict[str, None] = {}
        for source in self.run.corpus.sources:
            match = _HUB_CORPUS.fullmatch(source)
            if match is not None:
                names[match[1]] = None
        return list(names)

    def _results(self, task_type: str) -> list[EvalResult]:
        """Return the measured results; an export with other weights than those that were measured has none."""
        if not is_in_float32(self.export):
            return []
        # The student's own figures are not those of a folder that encodes documents with the teacher.
        if self.is_router:
            return list(router_results(self.evaluation, task_type))
        results = [*held_out_results(self.evaluation, task_type), *development_results(self.evaluation, task_type)]
        if self.shown_scores is not None:
            results += hub_results(self.shown_scores)
        return results

    @cached_property
    def shown_scores(self) -> TaskScores | None:
        """The scores on tasks that the card shows: those on rows that chose the step of the student are too good."""
        return None if self.scores is None else self.scores.without(self.run.splits_that_chose)

    @property
    def evaluation(self) -> records.RunEvaluation:
        """The measurements of teacher and student; they are empty where nothing was measured."""
        evaluation = self.run.evaluation or records.RunEvaluation()
        return evaluation.without_rows_that_chose()

    @cached_property
    def shown(self) -> records.RunEvaluation:
        """The measurements that the card shows: those on held-out text only if they are reliable."""
        return reliable_figures(self.evaluation)

    @property
    def is_instant(self) -> bool:
        """Whether the student was fitted to its teacher in closed form and not trained."""
        initialisation = self.run.student.initialisation
        if self.run.stages or not isinstance(initialisation, records.Initialisation):
            return False
        return initialisation.fit is not None and initialisation.fit.used

    @property
    def comparison(self) -> str:
        """The table of teacher and student in Markdown; empty where nothing was measured."""
        if not comparison_rows(self.shown):
            return ""
        evaluation = self.evaluation
        if evaluation.start is not None:
            start = evaluation.start.model_copy(update={"summary": without_paths(evaluation.start.summary)})
            evaluation = evaluation.model_copy(update={"start": start})
        return comparison_markdown(evaluation, reliable_only=True)

    @property
    def start(self) -> str:
        """How the student started, in a sentence; empty where that is not known."""
        return without_paths(self.run.student.start)

    @property
    def has_agreement(self) -> bool:
        """Whether the card shows an agreement of sentence vectors, be it of whole or of cut ones."""
        agreements = [self.shown.agreement, *(cut.agreement for cut in self.shown.cut)]
        return any(agreement is not None and agreement.spearman is not None for agreement in agreements)

    @property
    def has_retrieval(self) -> bool:
        """Whether the card shows a retrieval, be it of whole or of cut vectors."""
        shown = self.shown
        retrievals = [shown.student.retrieval, shown.asymmetric]
        retrievals += [retrieval for cut in shown.cut for retrieval in (cut.student, cut.asymmetric)]
        return any(retrieval is not None for retrieval in retrievals)

    @property
    def has_asymmetric_retrieval(self) -> bool:
        """Whether the card shows a retrieval of the student's queries in the teacher's documents."""
        return self.shown.asymmetric is not None

    @property
    def has_language_figures(self) -> bool:
        """Whether the card shows figures of a language, which needs enough held-out text in it."""
        return any(figures.is_measured for figures in self.shown.languages)

    @property
    def held_out_figures(self) -> str:
        """The names of the figures in the card that were measured on held-out text; empty where there are none."""
        names = []
        if self.has_agreement:
            names.append("the agreement")
        if self.has_retrieval:
            names.append("the retrieval")
        if self.has_language_figures:
            names.append("the figures by language")
        if len(names) < 2:
            return "".join(names)
        return f"{', '.join(names[:-1])} and {names[-1]}"

    @property
    def has_development_scores(self) -> bool:
        """Whether the card shows scores on development rows, which may also be missing for a reason."""
        return any(scores.student for scores in self.shown.development)

    @property
    def has_quality(self) -> bool:
        """Whether the card shows a figure of the student's quality."""
        has_scores = self.shown_scores is not None and bool(self.shown_scores.rows)
        has_row = any(row.is_score for row in comparison_rows(self.shown))
        return has_scores or has_row or self.has_language_figures

    @property
    def missing_quality(self) -> str:
        """Why the card shows no figure of the student's quality."""
        reasons = reasons_against(self.evaluation)
        if reasons:
            return " ".join(["The student's quality cannot be judged by this run.", *reasons])
        all_figures = self.run.evaluation or records.RunEvaluation()
        was_measured = any(row.is_score for row in comparison_rows(all_figures))
        # `evaluation` and `shown_scores` are other objects where they leave out what chose the step of the student.
        # `evaluation` is another object too where the run has none, so it is only asked for a run with scores.
        leaves_out_figures = was_measured and self.evaluation is not self.run.evaluation
        leaves_out_scores = self.shown_scores is not self.scores
        if leaves_out_figures or leaves_out_scores:
            return (
                "The student's quality was measured only on the text or the rows that chose its best step. Such "
                "figures are too good, so this card leaves them out."
            )
        return "The student's quality was not measured in this run."

    @property
    def score_warnings(self) -> list[str]:
        """Warnings of scores that are weak or guessed; none where the card has no scores of the task."""
        return list(score_warnings(self.evaluation))

    @property
    def missing_gain(self) -> str:
        """Which figures are not clearly above those of the start; empty where all are.

        Figures that the card leaves out count too: without them, a student would look better than it is.
        """
        return " ".join(gain_sentences(self.evaluation))

    @property
    def languages(self) -> str:
        """The table of languages in Markdown; empty where the languages of the text are not known."""
        table = languages_table(self.run, self.shown)
        if table is None:
            return ""
        notes = []
        if self.has_language_figures:
            notes.append(NOTE)
        if has_rough_figures(self.evaluation):
            notes.append(f"{FEW_TEXTS}, and left out here.")
        return "\n\n".join([markdown.plain_table(table), *notes]) + "\n"

    @property
    def is_measured(self) -> bool:
        """Whether the weights of the folder are those that were measured."""
        return is_in_float32(self.export) and not self.is_graph

    @property
    def is_graph(self) -> bool:
        """Whether the folder is an export as a graph, such as ONNX, which has no weights for PyTorch."""
        return self.export is not None and bool(self.export.file)

    @property
    def is_router(self) -> bool:
        """Whether the folder is an export with two models: the student for queries, and another for documents."""
        return self.export is not None and bool(self.export.documents)

    @property
    def is_pooled(self) -> bool:
        """Whether the folder also loads in sentence-transformers."""
        return is_sentence_folder(self.folder)

    @cached_property
    def sentence(self) -> SentencePooling | None:
        """How sentence vectors are made; None for a router, and where the folder does not define it."""
        if self.is_router or not self.is_pooled:
            return None
        try:
            return sentence_pooling(self.folder)
        except LimbeckError:  # The files of the folder are damaged: the card is written without this part.
            return None

    @property
    def pooling(self) -> str:
        """The pooling of sentence vectors, "cls" or "mean", as the folder defines it, else as the run measured it."""
        try:
            pooling = pooling_of_folder(self.folder)
        except LimbeckError:  # The files of the folder are damaged.
            pooling = None
        if pooling is None:
            pooling = self.evaluation.settings.pooling
        return "cls" if pooling == "cls" else "mean"

    @property
    def chain(self) -> str | None:
        """The steps that make sentence vectors, in words; None where they are the mean or the first token alone."""
        sentence = self.sentence
        if sentence is None:
            return None
        is_plain = not sentence.modules and sentence.pooling in ("mean", "cls")
        return None if is_plain else str(sentence)

    @property
    def prompts(self) -> dict[str, tuple[str, str]]:
        """The name and the text of the folder's prompt for each role, `query` and `document`, that has one."""
        text_by_name = self.sentence.prompts if self.sentence is not None else {}
        prompts = {}
        for role in ROLES:
            # Models give the prompt of a role one of several usual names; the first that the folder has is taken.
            names = [name for name in prompt_names(role) if name in text_by_name]
            if names:
                prompts[role] = (names[0], text_by_name[names[0]])
        return prompts

    @property
    def widths(self) -> list[int]:
        """The widths to which sentence vectors can be cut, since a stage has taught them so; the widest first."""
        widths = set()
        for stage in self.run.recipe.stages:
            truncate = stage.method.get("truncate")
            # A stage with a student of its own has not taught the run's student.
            if not stage.student and isinstance(truncate, list):
                widths |= {width for width in truncate if type(width) is int}
        return sorted(widths, reverse=True)

    @property
    def head_kind(self) -> str:
        """The kind of the head; a folder that makes sentence vectors is exported without it."""
        head = self.run.student.head if self.export is None else self.export.head
        return head or ""

    @property
    def head(self) -> Mapping[str, str] | None:
        """The facts about the head, an entry of `HEADS`; None without a head."""
        return HEADS.get(own_kind_like(self.head_kind))

    @property
    def reads_pairs(self) -> bool | None:
        """Whether the rows of the last labelled stage were pairs of texts; None where it cannot be known."""
        corpora = [stage.corpus or self.run.recipe.corpus for stage in self.run.recipe.stages]
        # A run without stages scores its student on the recipe's rows.
        for corpus in reversed(corpora or [self.run.recipe.corpus]):
            if corpus is not None and corpus.task:
                return reads_pairs(corpus.task)
        return None

    @property
    def trained_size(self) -> str:
        """How much text was trained on, in words; empty where it is not known."""
        return trained_size(self.run)

    @property
    def fitted_size(self) -> str:
        """How much text was read for the fit of a student without training, in words; empty for any other student."""
        text = self.run.corpus or records.CorpusText()
        return fitted_size(self.run, "" if text.tokens is None else f"{format_count(text.tokens)} tokens")

    @property
    def held_out_size(self) -> str:
        """How much text was held out, in words; empty where it is not known."""
        return held_out_size(self.run)

    @property
    def has_one_held_out(self) -> bool:
        """Whether one document, row or query alone was held out."""
        text = self.run.corpus or records.CorpusText()
        count = text.held_out_documents if text.held_out_queries is None else text.held_out_queries
        return count == 1

    @property
    def has_development(self) -> bool:
        """Whether the rows that the first stage was evaluated on are development rows, not held-out training rows."""
        return has_development_rows(self.run)

    @property
    def hub_name(self) -> str | None:
        """The teacher's name on the Hub as the run recorded it; None for a teacher in a folder."""
        teacher = self.run.teacher
        # Earlier versions did not record the name. The present one writes None for a teacher in a folder.
        is_recorded = "hub_id" in teacher.model_fields_set
        if not is_recorded:
            return self._hub_name_of_earlier_version
        if teacher.hub_id is None or not is_hub_name(teacher.hub_id):
            return None
        return teacher.hub_id

    @property
    def _hub_name_of_earlier_version(self) -> str | None:
        """The teacher's name on the Hub, for the record of a run that lacks it; None where it is not known.

        It is the name of the form `owner/model` that the recipe gives the teacher, else the recipe's `model`, if the
        Hub's cache on this machine has a model of that name.
        """
        planned = self.run.recipe.teacher
        if planned.name and "/" in planned.name and is_hub_name(planned.name):
            return planned.name
        name = planned.model or self.run.teacher.name_or_path
        if not is_hub_name(name):
            return None
        # A folder may have the form of a name on the Hub, so a name counts only if it was downloaded from there. For a
        # file that is not in the cache, the Hub's client returns None or an object of its own in place of the path.
        cached_file = try_to_load_from_cache(name, "config.json")
        return name if isinstance(cached_file, str) else None

    @property
    def teacher_name(self) -> str:
        """The name of a teacher that is not on the Hub: the last part of its path."""
        name = one_line(self.run.teacher.name_or_path)
        # `models/teacher` may be a name on the Hub or a relative path; the record has its kind.
        if self.run.teacher.kind == "folder":
            return folder_name(name)
        return name_in_card(name)

    @property
    def endpoints(self) -> list[records.Endpoint]:
        """The servers that vectors of teachers came from, each once."""
        teachers: list[records.Teacher | records.RunTeacher] = [self.run.teacher, *self.run.teachers]
        teachers += [stage.teacher_facts for stage in self.run.stages if stage.teacher_facts is not None]
        endpoints: list[records.Endpoint] = []
        for teacher in teachers:
            if teacher.endpoint is not None and teacher.endpoint not in endpoints:
                endpoints.append(teacher.endpoint)
        return endpoints

    @property
    def untrained(self) -> list[str]:
        """The names of the tensors in the folder that no stage trained."""
        names = []
        if self.run.untrained is not None:
            names = self.run.untrained.names
        elif self.run.stages:
            # Older records have for each stage the tensors that it did not train. Those that no stage trained are
            # in all of these lists.
            stages = self.run.stages
            names = [name for name in stages[0].untrained if all(name in stage.untrained for stage in stages)]
        names = without_unread_pooler(names, self.folder)
        # Exported graphs have no pooler.
        if self.is_graph:
            names = [name for name in names if not name.startswith("pooler.")]
        return names

    @property
    def unfit_texts(self) -> list[str]:
        """The kinds of texts, in words, that would read rows of embeddings which still have their random values."""
        tables = self.run.untrained.rows if self.run.untrained else []
        initial_tables = [table for table in tables if not self.run.holds_teachers(table)]
        return [_READERS[table.kind] for table in initial_tables if table.kind in _READERS]


def inherited_fields(run: Run) -> dict[str, Any]:
    """Return `language` and `license` (with `license_name` and `license_link`) of the front matter.

    Facts about the student in the record take precedence over those of the teacher's card. Earlier versions did not
    record the teacher's card: it is read if the teacher is on this machine.
    """
    teacher_card = run.teacher.card
    if teacher_card is None:
        teacher_card = _read_teacher_card(run)
    fields = {}
    language = single_language(run.language or teacher_card.language)
    if language is not None:
        fields["language"] = one_line(language)
    # The licence and the fields that belong to it come from one place: the record, if it has a licence.
    licence_owner: records.CardFields = teacher_card if run.license is None else run
    for key in LICENSE_KEYS:
        value = one_line(getattr(licence_owner, key))
        if value:
            fields[key] = value
    return fields


def _read_teacher_card(run: Run) -> records.CardFields:
    """Return the facts of the card of a run's teacher; they are empty where the teacher is not on this machine."""
    planned = run.recipe.teacher
    name = run.teacher.name_or_path
    # The record has the `name` that the recipe gives the teacher, if it gives one; the files are then at its `model`.
    place = planned.model if name == (planned.name or "") else name
    if not place:
        return records.CardFields()
    return records.CardFields.read(card_fields(place))
