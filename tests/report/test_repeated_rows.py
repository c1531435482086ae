"""Scores over rows that were trained on are too good: the Hub gets none of them, and a card says so."""

import pytest

from limbeck.core.records import Run
from limbeck.core.studies import ColumnFigure, EvaluatedModel, Evaluation
from limbeck.core.studies import Figure as Score
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.evaluation.plan.columns import headings_of_split, task_columns
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.evaluation.tasks.repeated_rows import repeated_row_notes
from limbeck.report.student_card import write_model_card
from limbeck.report.task_scores import hub_results, scores_of_model

TRAINED = LabelledRow("0", "the model reads a text of the corpus", label=1)
FRESH = LabelledRow("1", "nobody has trained on these other words", label=0)


def scored(*titles, notes=()):
    """The scores of a model on the split `validation` of some tasks, far above chance."""
    columns = []
    figures = {}
    for title in titles:
        columns.append({"key": title, "title": title, "task": title, "kind": "classification", "metric": "accuracy",
                        "splits": ["validation"]})  # fmt: skip
        figures[title] = ColumnFigure.of_runs(
            [90.0], metrics={"accuracy": Score.of_runs([90.0])}, chance=50.0, interval=[86.0, 94.0]
        )
    summary = Evaluation.read({"preset": "quick", "columns": columns, "notes": list(notes)})
    summary.models = [EvaluatedModel(name="model", columns=figures)]
    return scores_of_model(summary.models[0], summary)


@pytest.mark.parametrize(("split", "names"), [("validation", ["mine-2"]), ("test", ["mine", "mine-2"])])
def test_scores_over_repeated_rows_are_no_results_of_a_card(split, names, tmp_path):
    # `mine` repeats a row that it was trained on, in the split that is scored or in another one; `mine-2` repeats none.
    notes = list(repeated_row_notes("mine", [TRAINED], {split: [TRAINED, FRESH]}))
    notes += repeated_row_notes("mine-2", [TRAINED], {"validation": [FRESH]})
    assert len(notes) == 1
    scores = scored("mine", "mine-2", notes=notes)
    assert [result.dataset_name for result in hub_results(scores)] == names
    card = write_model_card(Run(), tmp_path, scores=scores).read_text(encoding="utf-8")
    assert ("mine validation: 1 of 2 rows repeats a training row" in card) is (split == "validation")


def test_every_column_of_a_task_has_a_heading_by_which_its_notes_are_found():
    for name in TASKS:
        task = TASKS[name]
        for column in task_columns(task):
            headings = set()
            for split in column.splits:
                headings |= headings_of_split(task.title, split)
            assert column.detail or column.title in headings
