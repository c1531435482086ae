"""Whether several runs were measured on the same held-out text or rows, as far as their records tell.

A *fact* is a number or a name that is equal where the text is the same, such as the number of held-out documents.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from limbeck.core.blocks import rounded
from limbeck.core.records import CorpusText, Run, RunEvaluation
from limbeck.report.names import at_start, metric_name, without_path
from limbeck.report.quality import agreement_name, retrieval_name

Facts: TypeAlias = dict[str, float | str | None]
"""Facts by their names in a note; None where a record does not tell one."""


def different_text_notes(runs: Sequence[Run]) -> Iterator[str]:
    """Yield a note for each measure that was not made on the same text in all runs, with the facts that differ.

    Args:
        runs: The records of runs that stand in one table.
    """
    # The figures of one teacher on the same text are equal if it was measured in the same way.
    has_common_teacher = len({_describe_teacher(run) for run in runs}) == 1
    facts_by_measure: dict[str, list[Facts]] = {}
    for run in runs:
        for measure, facts in _facts_by_measure(run, has_common_teacher=has_common_teacher).items():
            facts_by_measure.setdefault(measure, []).append(facts)

    for measure, facts_of_runs in facts_by_measure.items():
        differences = _differences(facts_of_runs)
        if differences:
            yield (
                f"'{measure}' was not measured on the same text in all of these runs ({'; '.join(differences)}), so do "
                "not compare it between them."
            )


def _differences(facts_of_runs: Sequence[Facts]) -> list[str]:
    """Return the facts that differ between runs, each with its values in the order of the runs."""
    values_by_fact: dict[str, list[str]] = {}
    for facts in facts_of_runs:
        for name, value in facts.items():
            if value is None:
                continue
            words = value if isinstance(value, str) else f"{value:,.0f}"
            values = values_by_fact.setdefault(name, [])
            if words not in values:
                values.append(words)
    return [f"{name}: {', '.join(values)}" for name, values in values_by_fact.items() if len(values) > 1]


def _describe_teacher(run: Run) -> tuple[object, ...]:
    """Return the teacher of a run and the settings on which its figures depend, to be compared with those of others."""
    settings = _evaluation_of(run).settings
    return run.teacher.name_or_path, settings.pooling, settings.max_length, settings.dtype, settings.seed


def _evaluation_of(run: Run) -> RunEvaluation:
    """Return the measurements of a run, which are empty where there are none."""
    return run.evaluation or RunEvaluation()


def _facts_by_measure(run: Run, *, has_common_teacher: bool) -> dict[str, Facts]:
    """Return the facts of the text of each measure of a run, by the measure's name.

    Args:
        run: The run.
        has_common_teacher: Whether the teacher's figures of all runs are equal where the text is the same.
    """
    evaluation = _evaluation_of(run)
    text: Facts = {"sources": _sources(run), "held-out documents": (run.corpus or CorpusText()).held_out_documents}
    facts_by_measure: dict[str, Facts] = {}
    agreement = evaluation.agreement
    if agreement is not None:
        amounts: Facts = {"sentences": agreement.sentences, "pairs": agreement.pairs}
        facts_by_measure[agreement_name(agreement)] = text | amounts

    retrieval = evaluation.student.retrieval
    teacher = evaluation.teacher.retrieval
    if retrieval is not None:
        facts: Facts = {"texts that are searched": retrieval.pool}
        if has_common_teacher and teacher is not None and teacher.mrr_at_10 is not None:
            # Two measurements of one teacher on the same text may differ in the last digits.
            facts["the teacher's MRR@10"] = rounded(teacher.mrr_at_10, 3)
        else:
            facts |= text
        facts_by_measure[retrieval_name(retrieval)] = facts

    # Rows that were held out from a task's training files.
    task = evaluation.task
    if task is not None and task.metric is not None:
        facts = {"rows": task.rows}
        if has_common_teacher and task.teacher is not None:
            facts["the teacher's score"] = rounded(task.teacher, 3)
        else:
            facts["sources"] = text["sources"]
        facts_by_measure[f"{at_start(metric_name(task.metric))} on held-out rows"] = facts
    return facts_by_measure


def _sources(run: Run) -> str | None:
    """Return the sources of the text that the figures are measured on; None where the record does not tell them.

    That text is of the first stage, and the record has the sources of all stages together.
    """
    if run.corpus is None or any(stage.corpus is not None for stage in run.recipe.stages):
        return None
    return " and ".join(map(without_path, run.corpus.sources)) or None
