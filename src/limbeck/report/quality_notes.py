"""The notes below the table of teacher and student: unclear gains, how it was measured, and why figures are missing."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from limbeck.core.blocks import NOTHING, Notes, counted, counted_rows, rounded
from limbeck.core.intervals import ends_of
from limbeck.core.kinds import kind_of
from limbeck.core.lists import enumerate_words
from limbeck.core.records import (
    Agreement,
    DevelopmentFigures,
    MeasuredWith,
    Retrieval,
    RunEvaluation,
    TaskFigures,
    UntrainedStart,
)
from limbeck.core.records.run_evaluation import (
    FEWEST_DOCUMENTS,
    FEWEST_QUERIES,
    RETRIEVAL,
    SATURATED,
    SUMMARY_IN_BODIES,
)
from limbeck.report.chance import ONLY_IMITATES, describe_weakness, guesser_of, verb_of, with_article
from limbeck.report.gains import gain_sentences, has_clear_loss, has_unclear_gain, is_no_better
from limbeck.report.names import metric_name, metric_of_rows
from limbeck.report.reliable import (
    chance_of,
    has_doubtful_times,
    has_enough_documents,
    has_enough_queries,
    has_enough_sentences,
    has_enough_texts,
    interval_of_held_out_score,
    is_guessed,
    is_reached_untrained,
    is_saturated,
    is_student_at_chance,
    is_unsteady,
    lowest_of_held_out_teacher,
    lowest_of_teacher,
)
from limbeck.report.scored_rows import (
    DEVELOPMENT,
    one_answer_line,
    one_answer_line_of_task,
    only_answer,
    rows_title,
)

Measured: TypeAlias = Mapping[str, Any] | RunEvaluation
"""A teacher beside its student: as a record has them, or as `limbeck.evaluation.Comparison.to_dict` gives them."""
_RANGES = 5
"""Ranges of the teacher's similarity; see `limbeck.evaluation.similarity_strata`."""
_FEW_ROWS = 100
"""Below this number of rows, scores are called rough."""
_ENOUGH_FITTED_TOKENS = 50_000
"""A fit to fewer tokens than these may be worse than one to more text."""


def comparison_notes(comparison: Measured) -> list[str]:
    """Return the lines that belong below the table: unclear gains, how it was measured, and why figures are missing."""
    return [line for notes in notes_blocks(comparison) for line in notes.lines]


def notes_blocks(comparison: Measured) -> list[Notes]:
    """Return the same lines as blocks: warnings, as of weak teachers and of unclear gains, before all other notes."""
    evaluation = RunEvaluation.read(comparison)
    notes = (
        *_latency_notes(evaluation),
        *_text_notes(evaluation),
        *_interval_notes(evaluation),
        *_vector_notes(evaluation),
        *_language_notes(evaluation),
        *_development_notes(evaluation),
        *_missing_notes(evaluation),
    )
    warnings = (*score_warnings(evaluation), *_gain_notes(evaluation), *_chosen_step_notes(evaluation))
    return [Notes(warnings, warning=True), Notes(notes)]


def reasons_against(evaluation: RunEvaluation) -> list[str]:
    """Return why figures on held-out text that were measured are not reliable, in sentences with their numbers."""
    reasons = []
    needed = f"and at least {FEWEST_QUERIES} are needed."
    agreement = evaluation.agreement
    if agreement is not None and not has_enough_sentences(agreement):
        sentences = counted(agreement.sentences or 0, "held-out sentence")
        reasons.append(f"The agreement with the teacher was measured on only {sentences}, {needed}")
    elif agreement is not None and not has_enough_documents(agreement):
        documents = counted(agreement.documents or 0, "held-out document")
        reasons.append(
            f"The agreement with the teacher was measured on only {documents}, and at least {FEWEST_DOCUMENTS} are "
            "needed."
        )
    teacher = evaluation.teacher.retrieval
    if teacher is not None and not has_enough_queries(teacher):
        noun = "held-out text" if teacher.measure == SUMMARY_IN_BODIES else "held-out passage"
        reasons.append(f"The retrieval was measured on only {counted(teacher.pool or 0, noun)}, {needed}")
    elif teacher is not None and is_saturated(teacher, "mrr_at_10"):
        reasons.append(
            f"The retrieval is too easy for the teacher: its MRR@10 is {rounded(teacher.mrr_at_10 or 0.0, 3)}, and "
            f"above {SATURATED:g} even poor students come close to it."
        )
    elif teacher is not None:
        reached = _reached_untrained_line(teacher, evaluation.start)
        if reached is not None:
            reasons.append(reached)
    measured_languages = [figures for figures in evaluation.languages if figures.is_measured]
    if measured_languages and not any(map(has_enough_texts, measured_languages)):
        most = max(figures.texts or 0 for figures in measured_languages)
        texts = counted(most, "held-out text")
        reasons.append(f"The figures by language were measured on {texts} of a language at most, {needed}")
    return reasons


def _reached_untrained_line(teacher: Retrieval, start: UntrainedStart | None) -> str | None:
    """Return the sentence that a student without training is as good as the teacher in a retrieval, if it is.

    Args:
        teacher: The teacher's figures.
        start: The untrained start.
    """
    retrieval_of_start = None if start is None else start.untrained_retrieval
    if retrieval_of_start is None or not is_reached_untrained(teacher, retrieval_of_start):
        return None
    lowest, highest = ends_of(teacher.interval) or (0.0, 0.0)
    return (
        f"The untrained start's MRR@10 of {rounded(retrieval_of_start.mrr_at_10 or 0.0, 3)} is not clearly below the "
        f"teacher's {rounded(teacher.mrr_at_10 or 0.0, 3)} (95 %: {rounded(lowest, 3)} to {rounded(highest, 3)}), so "
        "the retrieval on this text does not tell good students from poor ones."
    )


def missing_figures(evaluation: RunEvaluation, *names: str) -> list[str]:
    """Return why figures could not be measured, a sentence each.

    Args:
        evaluation: The measurements.
        names: Names of figures, as in `RunEvaluation.unavailable`; those that are not in there are left out.
    """
    unavailable = evaluation.unavailable
    return [f"No {name}: {_after_colon(unavailable[name])}" for name in names if name in unavailable]


def _latency_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield the conditions of the latencies, and a warning where the machine was too busy."""
    latency = evaluation.latency
    if latency is None:
        return
    conditions = f"texts of {latency.length} tokens, in {latency.dtype}, on {latency.device}"
    if latency.threads is not None:
        conditions += f" with {counted(latency.threads, 'thread')}"
    yield f"Latency: {conditions}. Teacher and student were measured in turn."
    doubtful = [f"{batch.batch_size}" for batch in latency.batches if has_doubtful_times(batch)]
    if doubtful:
        yield (
            f"The machine was busy, or the rounds were few, at batch size {' and '.join(doubtful)}. The times there "
            "contradict each other, or are further apart than the shapes of the models, so no speedup is given "
            f"({NOTHING}). Measure again on an idle machine with: limbeck benchmark model TEACHER STUDENT."
        )
    unsteady = [batch for batch in latency.batches if is_unsteady(batch) and not has_doubtful_times(batch)]
    busy = [f"{batch.batch_size}" for batch in unsteady]
    if busy:
        yield (
            f"The machine was busy at batch size {' and '.join(busy)}. Speedups compare neighbouring passes, so they "
            "are more reliable than the times."
        )


def _text_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield the notes on figures of held-out text and held-out rows."""
    if evaluation.agreement is not None:
        yield _agreement_note(evaluation.agreement, evaluation.settings)
    task = evaluation.task
    if task is not None and task.rows is not None:
        note = f"Task: {counted_rows(task.rows, task.queries)} held out from the training files"
        if task.stage:
            note += f" of stage '{task.stage}'"
        # The scores of a ranking are means over queries.
        if (task.queries or task.rows) < _FEW_ROWS:
            note += ": few, so the scores are rough"
        if task.labelled is False:
            note += "; the rows have no labels, so the student is compared with the teacher alone"
        elif task.agreement is not None:
            note += "; the student has not seen them, but the teacher may have been trained on them"
        # The teacher is named only if its scores stand beside the student's.
        if task.teacher_name and task.teacher is not None:
            note += f"; the teacher is '{task.teacher_name}'"
        yield (
            f"{note}. For reliable scores of the task, give development rows: as corpus.development of a recipe, or in "
            "a task file that you give as the corpus. Or score the finished student with: limbeck evaluate --as-is."
        )
    retrieval = evaluation.student.retrieval
    if retrieval is not None and retrieval.pool is not None:
        yield from _retrieval_notes(evaluation, retrieval, pool=retrieval.pool)
    yield from _start_notes(evaluation)


def _advice_on_amount(key: str, amount: float | None) -> str:
    """Return the advice to a measure of too few texts: more held-out text, unless the recipe asks for so few.

    Args:
        key: The key of the recipe that limits the number of texts.
        amount: Its value; None where it is not known.
    """
    if amount is not None and amount < FEWEST_QUERIES:
        return f"set {key} to {FEWEST_QUERIES} or more"
    return "hold out more text (corpus.held_out)"


def _agreement_note(agreement: Agreement, settings: MeasuredWith) -> str:
    """Return the note on the pairs of an agreement.

    Args:
        agreement: The agreement.
        settings: The settings of its evaluation.
    """
    held_out = settings.held_out_documents
    pairs = counted(agreement.pairs or 0, "pair")
    # Earlier versions, whose records name no measure, chose the pairs in another way.
    if agreement.measure is None:
        return f"Agreement: rank correlation with the teacher's similarities on {pairs} of held-out sentences."
    # Short or repeated documents have no sentence of their own, so that the sentences may be from some of them only.
    documents = counted(agreement.documents or 0, "held-out document")
    if held_out is not None and agreement.documents is not None and agreement.documents < held_out:
        documents = f"{agreement.documents:,.0f} of {counted(held_out, 'held-out document')}"
    sentences = f"{counted(agreement.sentences or 0, 'sentence')} from {documents}"
    note = f"Agreement: rank correlation with the teacher's similarities on {pairs} of {sentences}."
    if agreement.ranges == 1:
        note += " Only one range of similarity has enough pairs for a correlation."
    elif agreement.ranges in (None, 0, _RANGES):
        note += " It is the mean of five correlations, one for each range of similarity from far pairs to near ones."
    else:
        note += (
            f" It is the mean of {agreement.ranges:,.0f} correlations, one for each range of similarity with enough "
            f"pairs; there are {_RANGES} ranges, from far pairs to near ones."
        )
    if not has_enough_sentences(agreement):
        advice = _advice_on_amount("evaluation.pairs", settings.pairs)
        note += f" Fewer than {FEWEST_QUERIES} sentences are too few to show the figure in the model card; {advice}."
    if not has_enough_documents(agreement):
        note += (
            f" Fewer than {FEWEST_DOCUMENTS} documents are too few for a 95 % interval, and to show the figure in the "
            "model card; hold out more documents (corpus.held_out)."
        )
    return note


def _retrieval_notes(evaluation: RunEvaluation, retrieval: Retrieval, pool: float) -> Iterator[str]:
    """Yield the notes on the queries of a retrieval, and on figures that do not tell students apart."""
    # Earlier versions, whose records name no measure, searched bodies of text by their summaries.
    if retrieval.measure is None:
        yield f"Retrieval: each held-out summary is used to find its body among {pool:.0f}."
        return
    searched = "sentence is used to find the passage it was taken from"
    documents = "passages"
    if retrieval.measure == SUMMARY_IN_BODIES:
        searched = "title or first sentence is used to find the text behind it"
        documents = "texts"
    yield f"Passage retrieval: each held-out {searched}, among {pool:,.0f}."
    if not has_enough_queries(retrieval):
        advice = _advice_on_amount("evaluation.retrieval_pairs", evaluation.settings.retrieval_pairs)
        yield (
            f"Fewer than {FEWEST_QUERIES} {documents} are too few to compare with the teacher's retrieval, or to show "
            f"the figure in the model card; {advice}."
        )
        return
    teacher = evaluation.teacher.retrieval
    if teacher is None:
        return
    saturated = [metric_name(metric) for metric in RETRIEVAL if is_saturated(teacher, metric)]
    if saturated:
        verb = "is" if len(saturated) == 1 else "are"
        yield (
            f"The teacher's {', '.join(saturated)} {verb} above {SATURATED:g}. Where the teacher hardly ever "
            "fails, even poor students come close to it, so no share is given and the model card leaves the "
            "figure out."
        )
    reached = _reached_untrained_line(teacher, evaluation.start)
    if reached is not None:
        yield f"{reached} No share of it is given, and the model card leaves the figures out."


def _gain_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield the note on gains over the untrained start that are not certain, with advice."""
    sentences = gain_sentences(evaluation)
    if evaluation.start is not None and sentences:
        yield " ".join([*sentences, *_advice(evaluation, evaluation.start)])


def _chosen_step_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield a warning of figures on rows or text that decided which step's student was kept."""
    for scores in evaluation.development:
        if scores.chose_step and scores.student:
            yield _chosen_step_note(f"rows of {rows_title(scores)}", "scores on these rows")
    task = evaluation.task or TaskFigures()
    if task.chose_step and (task.student is not None or task.agreement is not None):
        yield _chosen_step_note("rows held out from the training files", "scores on these rows")
    if evaluation.chose_step and _has_figures_on_text(evaluation):
        yield _chosen_step_note("the held-out text", "figures on this text")


def _chosen_step_note(data: str, figures: str) -> str:
    """Return the warning of too good figures.

    Args:
        data: What chose the step.
        figures: The figures on it.
    """
    return f"The best step was chosen on {data}, so the {figures} flatter the student."


def _has_figures_on_text(evaluation: RunEvaluation) -> bool:
    """Return whether the student has figures on held-out text."""
    figures = (evaluation.agreement, evaluation.student.retrieval, evaluation.asymmetric)
    if any(figure is not None for figure in figures):
        return True
    return bool(evaluation.cut) or bool(evaluation.languages)


def _start_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield the notes on the start, whose figures stand below the student's."""
    start = evaluation.start
    if start is None:
        return
    if start.unavailable is not None:
        yield f"No {start.name}: {_after_colon(start.unavailable)}"
    elif start.agreement is not None or start.retrieval is not None or _has_scored_start(evaluation):
        yield _start_note(start)


def _start_note(start: UntrainedStart) -> str:
    """Return the note that says what the untrained start is, or the trained one."""
    gain = f"The difference is the gain from the {start.gain_of}. {start.summary}"
    if start.trained_model is not None:
        return f"Trained start: the trained model that this run began with. {gain}"
    if start.fitted_tokens is None:
        return f"Untrained start: a student of the same shape before the {start.gain_of}. {gain}"
    note = (
        "Untrained start: for each figure, the better of two students of the same shape without training: one with the "
        f"layers as they are copied, and one with the same layers fitted to the teacher on {start.fitted_tokens:,.0f} "
        f"tokens. {gain}"
    )
    if start.fitted_tokens < _ENOUGH_FITTED_TOKENS:
        note += (
            " This may flatter the training, because a fit to more text can be better: `limbeck distill --steps 0` "
            "makes such a student."
        )
    return note


def _advice(evaluation: RunEvaluation, start: UntrainedStart) -> Iterator[str]:
    """Yield the advice to a student that is not clearly better than the untrained start."""
    # A student that was fitted and not trained is one without training itself.
    if start.gain_of != "training" or not has_unclear_gain(evaluation):
        return
    # More steps do not help a student of a weak teacher, whose own warning has the advice.
    if any(weak_teacher_lines(evaluation)):
        return
    if not has_clear_loss(evaluation):
        yield "Train more steps, or on more text."
        if start.trained_model is None and is_no_better(evaluation):
            yield "Or keep a student without training, which takes less time: --steps 0 makes one."
        return
    if start.trained_model is not None:
        yield "Train more steps, on more text or with a lower learning rate, or keep the trained start."
        return
    # An untrained start that was scored by the head of a task has layers of the teacher already.
    if not _has_scored_start(evaluation):
        yield (
            "Train more steps or on more text, or start from the teacher's layers, for example by giving the student's "
            "shape as a number of layers."
        )
        return
    yield (
        "Train more steps, on more text or with a lower learning rate, or keep a student without training: --steps 0 "
        "makes one."
    )


def _has_scored_start(evaluation: RunEvaluation) -> bool:
    """Return whether the untrained start was scored on labelled rows, or compared with the teacher on such rows."""
    task = evaluation.task or TaskFigures()
    is_in_development = any(scores.start for scores in evaluation.development)
    return is_in_development or bool(task.start) or task.start_agreement is not None


def _interval_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield a note on the samples behind the 95 % intervals."""
    samples = []
    if evaluation.agreement is not None and evaluation.agreement.interval:
        samples.append(f"{counted(evaluation.agreement.documents or 0, 'document')} for agreement")
    retrieval = evaluation.student.retrieval
    if retrieval is not None and retrieval.interval:
        queries = "summaries" if retrieval.measure is None else "queries"
        samples.append(f"{retrieval.pool or 0:,.0f} {queries} for retrieval")
    kinds_with_intervals = {scores.kind for scores in evaluation.development if scores.intervals}
    if any(not kind_of(kind).has_queries for kind in kinds_with_intervals):
        samples.append("the development rows for scores")
    if any(kind_of(kind).has_queries for kind in kinds_with_intervals):
        samples.append("the development queries for scores")
    if samples:
        yield (
            "The 95 % intervals show how much the student's figures vary with the sample, which is "
            f"{enumerate_words(samples, 'and')}. "
            "How much the figures vary with the seed is not known, because there was only one run."
        )


def _vector_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield notes on how the compared vectors were made."""
    if evaluation.asymmetric is not None:
        if evaluation.asymmetric.measure is None:
            yield "In the teacher's documents: the student encodes the summaries, and the teacher the bodies."
        elif evaluation.asymmetric.measure == SUMMARY_IN_BODIES:
            yield "In the teacher's documents: the student encodes the queries, and the teacher the texts."
        else:
            yield "In the teacher's documents: the student encodes the queries, and the teacher the passages."
    if evaluation.cut:
        note = "Components: only the first ones of the vectors count."
        if any(cut.agreement is not None for cut in evaluation.cut):
            note += " The agreement is with the teacher's full vectors."
        yield note
    if evaluation.student.vector_width is not None:
        made_by = evaluation.settings.student_pooling or evaluation.settings.pooling
        yield f"Vector width: the student's vectors, made by {made_by}, are not as wide as its layers."
    for role, model in (("teacher", evaluation.teacher), ("student", evaluation.student)):
        if model.megabytes_of == "tensors":
            yield f"Weights: the {role}'s size is measured in memory, not on disk."


def _language_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield a note on the languages that have no figures because none of their text is held out."""
    without_text = [figures.language for figures in evaluation.languages if figures.texts == 0]
    if without_text:
        noun = "language" if len(without_text) == 1 else "languages"
        yield (
            f"No held-out text, and so no figures, of the {noun} {', '.join(without_text)}: hold out more text "
            "(corpus.held_out), or give more of it."
        )


def _development_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield notes on the development rows of each task.

    They are the number of rows, or the reason why there are no scores, and a warning if the student gives all rows one
    answer.
    """
    for scores in evaluation.development:
        if scores.unavailable is not None:
            yield f"No scores on {scores.task}: {scores.unavailable}"
        elif scores.rows is not None:
            yield _scored_rows_note(scores, row_count=scores.rows)
        warning = one_answer_line(scores)
        if warning is not None:
            yield warning


def score_warnings(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield warnings of teachers that are weak on their task, and of students that are no better than a guesser."""
    yield from weak_teacher_lines(evaluation)
    yield from _guessing_student_lines(evaluation)


def _guessing_student_lines(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield warnings of students whose main score is not clearly above that of a guesser, though the teacher's is."""
    for scores in evaluation.development:
        is_told_otherwise = _weak_teacher_line(scores) is not None or only_answer(scores) is not None
        if not is_told_otherwise and is_student_at_chance(scores, scores.metric):
            guesser = guesser_of(scores.metric, scores.kind)
            name = f"{metric_of_rows(scores.metric, scores)} on {rows_title(scores)}"
            yield _guessing_line(name, scores.student[scores.metric], guesser, chance_of(scores, scores.metric))

    task = evaluation.task or TaskFigures()
    if task.metric is None or task.student is None or task.only_answer:
        return
    if _weak_teacher_line_of_task(task) is not None:
        return
    chance = task.chance.get(task.metric)
    if is_guessed(task.student, interval_of_held_out_score(task.student, task.metric, task), chance):
        guesser = guesser_of(task.metric, task.task)
        yield _guessing_line(f"{metric_name(task.metric)} on held-out rows", task.student, guesser, chance)


def _guessing_line(name: str, score: float | None, guesser: str | None, chance: float | None) -> str:
    """Return the warning of a student that is no better than a guesser.

    Args:
        name: The main score in words.
        score: The student's.
        guesser: The name of the guesser; None where it has none.
        chance: The score of the guesser.
    """
    whose = "chance" if guesser is None else f"that of {with_article(guesser)}"
    return (
        f"The student's {name} {verb_of(name)} not clearly above {whose}: {rounded(score or 0.0, 3)} against "
        f"{rounded(chance or 0.0, 3)}. So nothing shows that the student has learned the task."
    )


def weak_teacher_lines(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield warnings of teachers that are weak on the task themselves: not clearly above chance, or below `WEAK`."""
    for scores in evaluation.development:
        line = _weak_teacher_line(scores)
        if line is not None:
            yield line
    line_of_task = _weak_teacher_line_of_task(evaluation.task or TaskFigures())
    if line_of_task is not None:
        yield line_of_task


def _weak_teacher_line(scores: DevelopmentFigures) -> str | None:
    """Return the warning of a teacher that is weak on development rows; None where it is not."""
    teacher = scores.teacher.get(scores.metric)
    if teacher is None:
        return None
    weakness = describe_weakness(
        metric_of_rows(scores.metric, scores),
        teacher,
        lowest=lowest_of_teacher(teacher, scores.metric, scores),
        chance=chance_of(scores, scores.metric),
    )
    if not weakness:
        return None
    return f"The teacher's {weakness}, so no share of it is given. {ONLY_IMITATES}"


def _weak_teacher_line_of_task(task: TaskFigures) -> str | None:
    """Return the same warning for rows that were held out from a task's training files, which have no shares."""
    if task.metric is None or task.teacher is None:
        return None
    weakness = describe_weakness(
        metric_name(task.metric),
        task.teacher,
        lowest=lowest_of_held_out_teacher(task.teacher, task.metric, task),
        chance=task.chance.get(task.metric) or 0.0,
    )
    if not weakness:
        return None
    return f"The teacher's {weakness}. {ONLY_IMITATES}"


def _scored_rows_note(scores: DevelopmentFigures, row_count: float) -> str:
    """Return the note on the number and the source of the rows of a task, and its teacher."""
    # Rows that a recipe gives by a file have the task name "development", and are titled by their split, which is the
    # name of the file. Older records lack it, so these rows have no title.
    is_of_file = scores.task == DEVELOPMENT
    if is_of_file and not scores.split:
        rows_phrase = counted_rows(row_count, scores.queries, "development row")
    else:
        rows_phrase = f"the {counted_rows(row_count, scores.queries)} of {rows_title(scores)}"
    note = f"Scored on {rows_phrase}, without fine-tuning"
    # The scores of a ranking rest on its queries, other scores on the rows.
    scored_count = scores.queries or row_count
    if scored_count < _FEW_ROWS:
        note += " (few, so the scores are rough)"
    # Another command may read the same rows up to another length, which gives other scores.
    if scores.length is not None:
        note += f"; length: {counted(scores.length, 'token')}"
    if scores.teacher_name:
        note += f"; teacher: {scores.teacher_name}"
    return f"{note}."


def _missing_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield the notes on figures that are meaningless or missing."""
    task = evaluation.task or TaskFigures()
    one_answer = one_answer_line_of_task(task)
    if one_answer is not None:
        yield one_answer
    if task.unavailable is not None:
        yield f"No task scores: {task.unavailable}"
    yield from missing_figures(evaluation, *evaluation.unavailable)


def _after_colon(sentence: str) -> str:
    """Return a sentence with a small first letter, unless its first word is an abbreviation or a name like `GPU`."""
    first_word = sentence.partition(" ")[0]
    if not first_word[1:].islower():
        return sentence
    return sentence[:1].lower() + sentence[1:]
