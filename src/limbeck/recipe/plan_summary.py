"""A plan in a few lines, for people."""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.corpus.settings import CorpusSettings, LabelledSettings, SourceUse
from limbeck.corpus.sources.named_sources import stored_size
from limbeck.evaluation.evaluators.head_match import match_head
from limbeck.evaluation.tasks.corpus_rows import TaskRows
from limbeck.methods.term import Term
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo
from limbeck.recipe.row_copies import summarise_copies
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.stage_terms import learn_labels


def summarise_plan(
    recipe: Recipe, teacher: TeacherInfo, student: StudentPlan, stages: Sequence[StagePlan]
) -> dict[str, str]:
    """Describe a run before it begins: its models, stages and choices.

    Args:
        recipe: The recipe.
        teacher: Its teacher.
        student: Its student.
        stages: Its stages.

    Returns:
        Lines by their titles. A line that an earlier stage has too stands once.
    """
    lines = {"teacher": f"{recipe.teacher.model} ({teacher.shape})", "student": str(student.shape)}
    for number, stage in enumerate(stages, start=1):
        lines[f"stage {number}: {stage.spec.title}"] = _summarise_stage(stage)
        if stage.teaches_vectors:
            lines[f"vectors of stage {number}"] = _summarise_vectors(stage)
        classes = _summarise_classes(stage)
        if classes:
            lines[f"classes of stage {number}"] = classes
        copies = summarise_copies(stage.corpus, labels=learn_labels(stage.terms))
        if copies and copies not in lines.values():
            lines[f"rows of stage {number}"] = copies
        sources = _summarise_sources(stage.corpus)
        if sources and sources not in lines.values():
            lines[f"sources of stage {number}"] = sources
    for key, reason in (recipe.reasons or {}).items():
        lines[f"chosen {key}"] = reason
    return lines


def _summarise_stage(stage: StagePlan) -> str:
    """The models of a stage, as far as they are its own, its terms and its lengths."""
    summary = ""
    if stage.student is not None:
        summary += f"makes {stage.student.shape}: "
    if stage.spec.teacher is not None:
        summary += f"taught by {stage.teacher.title}: "
    summary += ", ".join(_summarise_term(term) for term in stage.terms)
    if stage.spec.text.schedule is not None:
        summary += f"; {stage.spec.text.schedule}"
    return summary


def _summarise_term(term: Term) -> str:
    student = ", ".join(map(str, term.student))
    teacher = ", ".join(map(str, term.teacher))
    arrow = " <- " if term.teacher else ""
    prefix = f"; first {term.options['prefix']} numbers" if "prefix" in term.options else ""
    return f"{term.weight:g} x {term.objective}({student}{arrow}{teacher}{prefix})"


def _summarise_classes(stage: StagePlan) -> str:
    """Classes without a row, and those that are matched with the classes of a task by a guess."""
    notes = []
    if stage.absent:
        notes.append(f"no row has the class {' or '.join(stage.absent)}")
    rows = stage.corpus.rows if isinstance(stage.corpus, LabelledSettings) else None
    reads_scores_of_model = stage.teacher_head is not None and stage.teacher.stage is None
    if isinstance(rows, TaskRows) and reads_scores_of_model:
        notes += match_head(stage.teacher.title, stage.teacher.config, rows.definition.task).notes
    return "; ".join(notes)


def _summarise_vectors(stage: StagePlan) -> str:
    """How both models make their vectors; the teacher's way is marked if it is only assumed."""
    ending = " + Normalize" if stage.vectors.normalize else ""
    student = str(stage.vectors)
    if stage.kept_map is not None:
        student += f" + a map {stage.kept_map.inputs} → {stage.kept_map.outputs} that it keeps"
    assumed = "" if stage.pairing.sentence is not None else ", since none of its files says how"
    return f"the student's by {student}{ending}; the teacher's by {stage.teacher_vectors}{ending}{assumed}"


def _summarise_sources(settings: CorpusSettings | LabelledSettings) -> str:
    """The shares of mixed sources, and how sources are read; no text is read, so shares by size are estimates."""
    if not isinstance(settings, CorpusSettings):
        return ""
    mixing = settings.stated_mixing
    if mixing is None and not settings.uses:
        return ""

    titles = list(settings.titles)
    if settings.uses:
        has_named_parts = settings.mix is not None and settings.mix.by is not None
        names = settings.titles if has_named_parts else settings.places
        titles = [_summarise_use(name, use) for name, use in zip(names, settings.uses, strict=True)]
    ending = "" if settings.student_reads_prompts else "; the student reads no prompts"
    if mixing is None:
        return ", ".join(titles) + ending

    if not mixing.reads_sizes:
        shares = mixing.shares([None] * len(titles))
        return _list_shares(titles, shares) + ending
    sizes = [stored_size(source) for source in settings.places]
    if None in sizes:
        return ", ".join(titles) + ending
    return _list_shares(titles, mixing.shares(sizes)) + " (about, by the stored sizes of the files)" + ending


def _list_shares(titles: Sequence[str], shares: Sequence[float]) -> str:
    return ", ".join(f"{title} {share:.1%}" for title, share in zip(titles, shares, strict=True))


def _summarise_use(title: str, use: SourceUse) -> str:
    """A source with its role, its prompt and its kinds of pieces."""
    words: list[str] = []
    if use.role is not None:
        words.append(use.role)
    if use.prompt:
        words.append(f"prompt {use.prompt!r}")
    if use.units:
        words.append(" and ".join(use.units))
    return f"{title} ({', '.join(words)})" if words else title
