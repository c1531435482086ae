"""A plan in a few lines of text, as `limbeck validate` prints it."""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.core.lists import enumerate_words
from limbeck.corpus.settings import CorpusSettings, LabelledSettings, SourceUse
from limbeck.corpus.sources.named_sources import stored_size
from limbeck.evaluation.evaluators.head_match import match_head
from limbeck.evaluation.tasks.corpus_rows import TaskRows
from limbeck.methods.term import Term
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo
from limbeck.recipe.row_copies import summarise_copies
from limbeck.recipe.schema import Recipe
from limbeck.recipe.shared_reading import describe_shared_reading
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.stage_terms import learn_labels
from limbeck.recipe.student_head import describe_missing_head

_LAYER_STREAMS = ("hidden", "query", "key", "value", "context", "cls")
"""Streams of single layers; the others are of the whole model."""


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
        Lines by their titles, in their order. Copies of rows, and sources, that are those of an earlier stage have no
        second line.
    """
    lines = _summarise_teachers(recipe, teacher)
    lines["student"] = str(student.shape)
    missing_head = describe_missing_head(stages)
    if missing_head is not None:
        lines["head"] = missing_head
    for member in teacher.members:
        if member.teaching is not None and member.teaching.summary:
            name = "targets" if teacher.combination is None else f"targets of {member.title}"
            lines[name] = member.teaching.summary
    tokens = _summarise_tokens(student, stages)
    if tokens:
        lines["tokens"] = tokens
    for number, stage in enumerate(stages, start=1):
        lines[f"stage {number}: {stage.spec.title}"] = _summarise_stage(stage)
        if stage.teaches_vectors:
            lines[f"vectors of stage {number}"] = _summarise_vectors(stage)
        if not stage.pairing.labelled:
            lines[f"labels of stage {number}"] = "none: the student learns from the teacher alone"
        classes = _summarise_classes(stage)
        if classes:
            lines[f"classes of stage {number}"] = classes

        layers = describe_other_layers(student, stage)
        if layers:
            lines[f"layers of stage {number}"] = layers

        # Stages often share their text, so a line that an earlier stage has already is not repeated.
        copies = summarise_copies(stage.corpus, labels=learn_labels(stage.terms))
        if copies and copies not in lines.values():
            lines[f"rows of stage {number}"] = copies
        translations = _summarise_translations(stage.corpus)
        if translations:
            lines[f"translations of stage {number}"] = translations
        # The same holds for the line of the sources.
        sources = _summarise_sources(stage.corpus)
        if sources and sources not in lines.values():
            lines[f"sources of stage {number}"] = sources

    if recipe.reasons is not None:
        for path, reason in recipe.reasons.items():
            lines[f"chosen {path}"] = reason
    return lines


def _summarise_teachers(recipe: Recipe, teacher: TeacherInfo) -> dict[str, str]:
    """The lines on the teacher, or on several with their shares and how they are combined, by their titles."""
    combination = teacher.combination
    if combination is None:
        # Stored outputs without a model are known by their title alone.
        name = recipe.teacher.model if teacher.has_weights else teacher.title
        return {"teacher": f"{name} ({teacher.description})"}
    lines = {}
    for member in combination.members:
        share = member.weight / sum(combination.weights)
        lines[f"teacher {member.name}"] = f"{member.teacher.title} ({member.teacher.description}), {share:.0%}"
    if combination.width is not None:
        lines["combined vectors"] = f"{combination.vectors}, {combination.width} numbers"
    return lines


def _summarise_tokens(student: StudentPlan, stages: Sequence[StagePlan]) -> str:
    """The tokens of a student that does not read its teacher's; empty for any other.

    Args:
        student: The recipe's student.
        stages: All stages of the recipe, also those that train a student of their own.
    """
    trained_words = student.tokenizer.trained_words
    if trained_words:
        return f"the student's are {trained_words:,} WordPieces that are trained on the text"
    cut = student.tokenizer.cut
    if cut is not None:
        text = "the text"
        if cut.counted:
            text = ", ".join(cut.counted)
        if cut.pieces is not None:
            summary = f"the student's are the {cut.pieces:,} of '{student.tokenizer.model}' that {text} uses most"
        else:
            summary = (
                f"the student's are as many of '{student.tokenizer.model}' as cover {cut.coverage:.6g} of the tokens "
                f"of {text}"
            )
        # A stage with a student of its own says nothing about this one.
        stages_of_student = [stage for stage in stages if stage.student is None]
        return "; ".join([summary, *describe_shared_reading(stages_of_student)])
    # A stage has a tokenizer of the teacher only where the teacher does not read the student's batches.
    reads_apart = any(stage.teacher_tokenizer not in (None, stage.tokenizer) for stage in stages)
    if not reads_apart:
        return ""
    return f"the student's are those of '{student.tokenizer.model}', and the teacher reads its own"


def _summarise_stage(stage: StagePlan) -> str:
    """The terms, lengths and pairs of a stage, after those of its models that are not the recipe's."""
    summary = ""
    if stage.student is not None:
        summary += f"makes {stage.student.shape}: "
    if stage.spec.teacher is not None:
        summary += f"taught by {stage.teacher.title}: "
    if stage.spec.layers_from is not None:
        summary += f"layers of {stage.spec.layers_from}: "
    summary += ", ".join(_summarise_term(term) for term in stage.terms)
    if stage.spec.text.schedule is not None:
        summary += f"; {stage.spec.text.schedule}"
    if isinstance(stage.corpus, CorpusSettings) and stage.corpus.pairs:
        summary += "; blocks are pairs of adjacent segments"
    return summary


def _summarise_term(term: Term) -> str:
    """A term as its weight, its objective and its streams: `1 x hidden_mse(hidden@6 <- hidden@12)`."""
    streams = ", ".join(str(key) for key in term.student)
    if term.teacher:
        streams += " <- " + ", ".join(str(key) for key in term.teacher)
    if "prefix" in term.options:
        streams += f"; first {term.options['prefix']} numbers"
    return f"{term.weight:g} x {term.objective}({streams})"


def describe_other_layers(student: StudentPlan, stage: StagePlan) -> str:
    """The layers of the student that learn from other layers of the teacher than they start from; empty for none.

    Args:
        student: The recipe's student.
        stage: The stage.
    """
    sources = student.source_layers
    trains_another_student = stage.student is not None
    has_another_teacher = stage.teacher != student.source
    if not sources or trains_another_student or has_another_teacher:
        return ""
    taught: dict[int, int] = {}
    for term in stage.terms:
        layers = {key.layer for key in term.student if key.name in _LAYER_STREAMS}
        teacher_layers = {key.layer for key in term.teacher if key.name in _LAYER_STREAMS}
        # A term on several layers follows no single one. Layer 0 is the embedding output.
        if len(layers) == 1 and len(teacher_layers) == 1:
            [layer] = layers
            [teacher_layer] = teacher_layers
            if layer > 0 and teacher_layer > 0:
                taught[layer] = teacher_layer

    differing = []
    for layer, teacher_layer in sorted(taught.items()):
        source = sources[layer - 1]
        if source != teacher_layer:
            differing.append(f"layer {layer} starts from the teacher's {source} and learns from its {teacher_layer}")
    if not differing:
        return ""
    return (
        f"{', '.join(differing)}, since the start does not know the method's mapping; set mapping: ends in the method, "
        "or list the layers to start from in student.initialise.layers"
    )


def _summarise_classes(stage: StagePlan) -> str:
    """Classes without a row, and those that are matched with the classes of a task by a guess."""
    notes = []
    if stage.absent:
        notes.append(f"no row has the class {' or '.join(stage.absent)}")
    # Only a teacher with files may name its classes differently from the task. A teacher that is the student of an
    # earlier stage has the classes of that stage's rows.
    has_files = stage.teacher.is_known_model and stage.teacher.stage is None
    reads_scores_of_model = stage.teacher_head is not None and has_files
    if isinstance(stage.corpus, LabelledSettings) and reads_scores_of_model:
        rows = stage.corpus.rows
        if isinstance(rows, TaskRows):
            notes += match_head(stage.teacher.title, stage.teacher.config, rows.definition.task).notes
    return "; ".join(notes)


def _summarise_vectors(stage: StagePlan) -> str:
    """How both models make their vectors; the teacher's way is marked if it is only assumed."""
    # The student's vectors are compared with the teacher's, so both are scaled to length one or neither is.
    is_normalized = stage.vectors.normalize
    student = str(stage.vectors)
    if stage.kept_map is not None:
        student += f" + a map {stage.kept_map.inputs} → {stage.kept_map.outputs} that it keeps"
    if is_normalized:
        student += " + Normalize"

    if stage.teacher.is_known_model:
        teacher = f"by {stage.teacher_vectors}"
        if is_normalized:
            teacher += " + Normalize"
        # Without files that say how, the way of the teacher is the usual one.
        if stage.pairing.sentence is None:
            teacher += ", since none of its files says how"
    else:
        # Only the outputs of such a teacher are known.
        teacher = "are those that are stored"
        if is_normalized:
            teacher += ", scaled to length one"
    return f"the student's by {student}; the teacher's {teacher}"


def _summarise_sources(settings: CorpusSettings | LabelledSettings) -> str:
    """The sources of a text, with their shares if they are mixed, and how each is read.

    No text is read, so that shares by size are estimates from the sizes of the files. The summary is empty where the
    sources are neither mixed nor described by more than their names.
    """
    if not isinstance(settings, CorpusSettings):
        return ""
    mixing = settings.stated_mixing
    if mixing is None and not settings.uses:
        return ""

    titles = _titles_of_sources(settings)
    summary = ", ".join(titles)
    if mixing is not None and not mixing.reads_sizes:
        # These shares need the number of sources, but no size.
        no_sizes = [None] * len(titles)
        summary = _list_shares(titles, mixing.shares(no_sizes))
    elif mixing is not None:
        sizes = [stored_size(source) for source in settings.places]
        # The size of a stream is not known. Then the sources are listed without shares.
        if None not in sizes:
            summary = _list_shares(titles, mixing.shares(sizes)) + " (about, by the stored sizes of the files)"
    if not settings.student_reads_prompts:
        summary += "; the student reads no prompts"
    return summary


def _summarise_translations(settings: CorpusSettings | LabelledSettings) -> str:
    """The languages of parallel text, and the one that the teacher reads; empty for other text."""
    if not isinstance(settings, CorpusSettings):
        return ""
    summaries = []
    for source in settings.parallel_sources:
        languages = source.all_languages
        summaries.append(f"the student reads {enumerate_words(languages, 'and')}, and the teacher {languages[0]} alone")
    return "; ".join(dict.fromkeys(summaries))


def _titles_of_sources(settings: CorpusSettings) -> list[str]:
    """The names of the sources, or of the parts that they are mixed by, with how each is read."""
    if not settings.uses:
        return list(settings.titles)
    has_named_parts = settings.mix is not None and settings.mix.by is not None
    names = settings.titles if has_named_parts else settings.places
    return [_summarise_use(name, use) for name, use in zip(names, settings.uses, strict=True)]


def _list_shares(titles: Sequence[str], shares: Sequence[float]) -> str:
    """The sources with their shares in percent."""
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
    if not words:
        return title
    return f"{title} ({', '.join(words)})"
