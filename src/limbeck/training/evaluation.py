"""Comparison of a run's saved student with its teacher, at the end of the run.

It has two parts: the *comparison* of sentence vectors, size and speed, and the *scores* of both models on tasks, for
students with the head of a task. The figures of both go into the run's record.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core.lists import enumerate_words
from limbeck.core.progress import Count, Report, Tick, no_progress
from limbeck.core.records import RunEvaluation, UntrainedStart
from limbeck.errors import LimbeckError
from limbeck.evaluation import Amounts, Side, Start, compare_models, measure_task
from limbeck.evaluation.combined_side import CombinedSide
from limbeck.evaluation.held_out_scores import FEWEST_ROWS
from limbeck.evaluation.languages import measure_languages
from limbeck.evaluation.stored_side import StoredSide
from limbeck.models.loading import load_model
from limbeck.models.locating import is_local, resolve_model
from limbeck.models.sentence_heads import SentenceHead, describe_pooling, pooling_alone
from limbeck.models.sentences import finished_pooling
from limbeck.models.start_head import names_of_head
from limbeck.models.vector_combination import VectorCombination
from limbeck.recipe.model_plans import TeacherInfo
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.student_head import describe_missing_head
from limbeck.targets.facts import read_facts
from limbeck.training.compared_text import amounts_of, held_out_texts, measures_of_text
from limbeck.training.rows import AnyCorpus
from limbeck.training.run import Run
from limbeck.training.stage_rows import label_kind, pad_collator
from limbeck.training.student_maker import NO_HEAD_TO_START_WITH
from limbeck.training.task_scores import last_stage_of_head, measure_tasks
from limbeck.training.teaching.combined import COMBINATION


def evaluate_student(run: Run, report: Report = no_progress) -> dict[str, Any]:
    """Load the saved student from disk, as a user would, and compare it with the teacher in float32.

    Args:
        run: A run whose student is saved.
        report: Receives the progress of each part of the work.

    Returns:
        The figures, by the names of the run's record.
    """
    plan = run.plan
    report(0.0, "loading both models")
    student = load_model(str(run.student_folder))
    teacher_vectors, student_vectors = plan.vectors_of_both(run.student_folder)

    amounts = amounts_of(plan, run.corpora)
    start, no_start = _untrained_start(run, teacher_vectors, student_vectors, amounts, report)
    comparison = compare_models(
        teacher_side(run, teacher_vectors),
        _side(run, student, run.tokenizers.student, student_vectors, run.student_folder),
        held_out_texts(run.plan, run.corpora, run.tokenizers.student, run.console),
        amounts,
        start=start,
        asymmetric=bool(plan.vector_stages),
        widths=plan.trained_widths,
        seed=plan.recipe.seed,
        report=report,
    )

    _add_languages(run, comparison, teacher_vectors, student_vectors, student, report)
    if no_start:
        comparison.start = UntrainedStart(unavailable=no_start)

    begin = time.perf_counter()
    starts_with_head: Sequence[PreTrainedModel] = ()
    if not _is_untrained(plan) and _scores_rows(run):
        starts_with_head, comparison.start = _untrained_with_head(run, report)
    development = measure_tasks(
        plan, run.tokenizers, run.student_folder, run.teachers.load, report, starts=starts_with_head
    )
    if development:
        comparison.seconds["development"] = round(time.perf_counter() - begin, 3)
        scores: dict[str, Any] = {"development": [figures.to_dict() for figures in development]}
    else:
        # Neither tasks nor development rows: the held-out part of the training rows stands in for them.
        scores = _score_held_out_rows(run, report, starts_with_head)
    return {**comparison.to_dict(), **scores, **_chose_step_field(plan)}


def describe_comparison(run: Run) -> str:
    """Return a sentence that names the parts of the comparison of a run, in their order.

    Which parts a teacher of stored outputs has, or several teachers, is known only once they are read, so that they
    are not named.

    Args:
        run: A run whose student is saved.
    """
    parts: list[str] = []
    if run.plan.teacher_info.is_one_model:
        parts = _parts_of_comparison(run)
    if not parts:
        return "Comparing teacher and student …"
    return f"Comparing teacher and student: {enumerate_words(parts, 'and')}."


def _parts_of_comparison(run: Run) -> list[str]:
    """Return the parts of the comparison of a run in words, in the order of `evaluate_student`."""
    plan = run.plan
    amounts = amounts_of(plan, run.corpora)
    is_trained = not _is_untrained(plan)
    making_start = "making the untrained start"
    parts: list[str] = []
    if amounts.pairs > 0 or amounts.retrieval_pairs > 0:
        models = "both models"
        if is_trained:
            parts.append(making_start)
            models = "all models"
        texts = held_out_texts(plan, run.corpora, run.tokenizers.student, run.console)
        parts += [f"{measure} of {models}" for measure in measures_of_text(texts, amounts)]
    if amounts.latency_seconds > 0:
        parts.append("latency")
    # The same conditions as those of `_add_languages`.
    has_languages = bool(run.corpora and run.corpora[0].languages)
    if amounts.pairs > 0 and has_languages and run.corpora[0].held_out_by_language("documents"):
        parts.append("figures by language")
    if _scores_rows(run):
        if is_trained and run.may_make_untrained(plan.head):
            parts.append(making_start)
        parts.append("answers to the rows of the task")
    return parts


def teacher_side(run: Run, vectors: str | SentenceHead) -> Side:
    """Describe the teacher for the comparison, or several as one; it is loaded unless its outputs are stored."""
    teacher = run.plan.teacher_info
    if teacher.combination is not None:
        return _combined_side(run, teacher.members, vectors)
    return _side_of_teacher(run, teacher, vectors)


def _add_languages(
    run: Run,
    comparison: RunEvaluation,
    teacher_vectors: str | SentenceHead,
    student_vectors: str | SentenceHead,
    student: PreTrainedModel,
    report: Report,
) -> None:
    """Add the figures by language to a comparison, where the languages of the run's text are known.

    Args:
        run: The run.
        comparison: Receives the figures, in place.
        teacher_vectors: How the teacher makes sentence vectors.
        student_vectors: How the student makes them.
        student: The student.
        report: Receives progress.
    """
    compares_vectors = amounts_of(run.plan, run.corpora).pairs > 0
    if not run.corpora or not compares_vectors:
        return
    corpus = run.corpora[0]
    if not corpus.languages:
        return
    places_of_language = corpus.held_out_by_language("documents")
    if not places_of_language:
        comparison.unavailable["languages"] = (
            "This text does not tell which held-out documents are of which language: it is a stream, or was built by "
            "an earlier version (set $LIMBECK_CACHE to another folder to build it anew)."
        )
        return
    report(0.0, "figures by language")
    documents = corpus.held_out_documents()
    documents_of_language = {}
    for language, places in places_of_language.items():
        documents_of_language[language] = [documents[place] for place in places]

    begin = time.perf_counter()
    student_side = _side(run, student, run.tokenizers.student, student_vectors, run.student_folder)
    try:
        comparison.languages = measure_languages(
            teacher_side(run, teacher_vectors), student_side, documents_of_language
        )
    except LimbeckError as error:
        comparison.unavailable["languages"] = str(error)
    comparison.seconds["languages"] = round(time.perf_counter() - begin, 3)


def _chose_step_field(plan: RunPlan) -> dict[str, Any]:
    """Return the record's field `chose_step`, where held-out text chose the step of a stage; else no field."""
    for stage in plan.own_stages:
        if stage.chooses_step and stage.development is None:
            return {"chose_step": True}
    return {}


def _untrained_start(
    run: Run, teacher_vectors: str | SentenceHead, student_vectors: str | SentenceHead, amounts: Amounts, report: Report
) -> tuple[Start | None, str]:
    """Make the untrained students that the trained one is compared with.

    Args:
        run: The run.
        teacher_vectors: How the teacher makes sentence vectors.
        student_vectors: How the student makes them.
        amounts: How much is compared.
        report: Receives progress.

    Returns:
        The start, with an empty text; or None, with the reason why it cannot be made. None with an empty text where
        there is nothing to compare: no sentence vectors, or a student that is itself an untrained start.
    """
    compares_vectors = amounts.pairs > 0 or amounts.retrieval_pairs > 0
    if not compares_vectors or _is_untrained(run.plan):
        return None, ""
    try:
        students = run.make_untrained(tick=_report_start(report))
    except LimbeckError as error:
        return None, str(error)
    # A student that makes its vectors as its teacher does has the teacher's maps behind its pooling, as the untrained
    # students do. Any other maps were trained with the student, so the untrained students have none.
    vectors = student_vectors
    if describe_pooling(student_vectors) != describe_pooling(teacher_vectors):
        vectors = pooling_alone(student_vectors)
    sides = [_side(run, model.eval(), run.tokenizers.student, vectors, folder=None) for model in students.models]
    return Start(sides, students.record), ""


def _is_untrained(plan: RunPlan) -> bool:
    """Whether the student is neither trained nor fitted to its teacher, and so is itself what a start would be."""
    is_fitted = plan.student_plan.spec.initialise.fit is not None
    return not plan.stages and not is_fitted


def _report_start(report: Report) -> Tick:
    """Report that the start is made, and return a function that reports how far its fit is."""
    what = "making the untrained start"
    report(0.0, what)

    def report_amount(done: int, total: int, unit: str, /) -> None:
        report(done / total, what, Count(done, unit, total))

    return report_amount


def _scores_rows(run: Run) -> bool:
    """Whether the student has the head of a task, and there are rows to score it on."""
    plan = run.plan
    stage = last_stage_of_head(plan)
    if stage is None:
        return False
    if plan.recipe.evaluation.tasks or stage.development is not None:
        return True
    return len(_rows_of(run, stage).held_out) >= FEWEST_ROWS


def _untrained_with_head(run: Run, report: Report) -> tuple[Sequence[PreTrainedModel], UntrainedStart]:
    """Make the untrained students with the head of their teacher that are scored beside the trained one.

    Args:
        run: A run whose student has the head of a task.
        report: Receives progress.

    Returns:
        The untrained students with where they are from; or none with the reason why they cannot be made.
    """
    try:
        students = run.make_untrained(run.plan.head, _report_start(report))
    except LimbeckError as error:
        return (), UntrainedStart(unavailable=str(error))
    # All of them have the same head.
    if not set(names_of_head(students.models[0])) <= set(students.copied_head):
        return (), UntrainedStart(unavailable=NO_HEAD_TO_START_WITH, trained_model=students.record.trained_model)
    students.record.summary += " The head is from the same model."
    return [model.eval() for model in students.models], students.record


def _combined_side(run: Run, members: Sequence[TeacherInfo], vectors: str | SentenceHead) -> Side:
    """Describe several teachers, by the combination of vectors that the run has kept.

    Args:
        run: The run.
        members: The teachers.
        vectors: How the combined vectors are made.
    """
    sides = []
    for member in members:
        # Each teacher makes its vectors as its files say, else as the mean of its tokens.
        pooling = finished_pooling(member.sentence)
        sides.append(_side_of_teacher(run, member, SentenceHead(pooling)))
    # Only a run that learned from vectors has a combination of them.
    combination: VectorCombination | None = None
    file = run.folder / COMBINATION
    if file.is_file():
        combination = VectorCombination.load(file)
    # All teachers together have no model of their own; each of `members` has one.
    return CombinedSide(
        model=None,
        tokenizer=run.tokenizers.student,
        vectors=vectors,
        max_length=run.plan.recipe.evaluation.length,
        members=sides,
        combination=combination,
    )


def _side_of_teacher(run: Run, teacher: TeacherInfo, vectors: str | SentenceHead) -> Side:
    """Describe one teacher; it is loaded unless its outputs are stored."""
    tokenizer = run.tokenizers.student
    if teacher.tokenizer is not None:
        tokenizer = run.tokenizers.load(teacher.tokenizer)
    if not teacher.has_weights:
        # The outputs are read from the store, so the side has no model.
        store = Path(str(teacher.spec.stored)).expanduser()
        length = run.plan.recipe.evaluation.length
        return StoredSide(
            model=None,
            tokenizer=tokenizer,
            vectors=vectors,
            max_length=length,
            store=store,
            facts=read_facts(store),
        )
    model = run.teachers.load(teacher)
    place = resolve_model(teacher.spec.model)
    # A model that transformers loads by its name on the Hub has no folder here.
    folder = None
    if is_local(place):
        folder = place
    return _side(run, model, tokenizer, vectors, folder)


def _side(
    run: Run,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    vectors: str | SentenceHead,
    folder: Path | str | None,
) -> Side:
    """Describe one of the two models for the comparison.

    Args:
        run: The run.
        model: The model.
        tokenizer: Its tokenizer.
        vectors: How it makes sentence vectors.
        folder: Its folder; None for a model that is not on this machine.
    """
    length = run.plan.recipe.evaluation.length
    return Side(model, tokenizer, vectors, max_length=length, folder=folder)


def _rows_of(run: Run, stage: StagePlan) -> AnyCorpus:
    """Return the rows of a stage; of a run without stages the recipe's."""
    if not run.plan.stages:
        return run.start_rows
    return run.corpora[run.plan.stages.index(stage)]


def _score_held_out_rows(run: Run, report: Report, starts: Sequence[PreTrainedModel]) -> dict[str, Any]:
    """Score a student with the head of a task on held-out rows, beside its teacher if that has the head too.

    Args:
        run: The run.
        report: Receives progress.
        starts: Untrained students; without any they are left out.

    Returns:
        The record's field `task` with the scores, or with the reason why there are none. No field for a run on text.
    """
    stage = last_stage_of_head(run.plan)
    if stage is None:
        missing_head = describe_missing_head(run.plan.stages)
        return {} if missing_head is None else {"task": {"unavailable": missing_head}}
    report(0.0, "scoring held-out rows")
    corpus = _rows_of(run, stage)
    teacher: PreTrainedModel | None = None
    if stage.teacher_head is not None and stage.teacher.is_one_model:
        teacher = run.teachers.load(stage.teacher, head=stage.teacher_head)
    student = load_model(str(run.student_folder), head=stage.student_head)
    collate = pad_collator(run.tokenizers.of_stage(stage), label_kind(stage))
    try:
        scores = measure_task(
            teacher,
            student,
            corpus.held_out,
            collate,
            stage.pairing.task,
            starts=starts,
            labelled=stage.pairing.labelled,
            report=report,
        )
    except LimbeckError as error:
        return {"task": {"unavailable": str(error)}}
    facts = {**scores.to_dict(), "teacher_name": stage.teacher.title, "chose_step": stage.chooses_step}
    # The rows were scored in windows, of which a long one has several. Pairs of a ranking are never cut.
    if scores.queries is None:
        facts["rows"] = corpus.manifest["held_out_documents"]
    # Without stages the rows are those of the recipe.
    if run.plan.stages:
        facts["stage"] = stage.spec.title
    return {"task": facts}
