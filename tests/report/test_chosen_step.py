"""Figures on rows or text that chose the step of the student are too good: the card lacks them, and others say so."""

from csv import DictReader
from io import StringIO

import pytest

from limbeck.core.blocks import Figure, Table
from limbeck.core.records import BestStep, Run, RunEvaluation, ScoredByStep
from limbeck.core.studies import ColumnFigure, EvaluatedModel, Evaluation
from limbeck.core.studies import Figure as Score
from limbeck.report.collect import collect
from limbeck.report.quality import comparison_csv
from limbeck.report.quality_notes import comparison_notes
from limbeck.report.run import run_summary
from limbeck.report.runs_beside import run_blocks
from limbeck.report.student_card import model_card
from limbeck.report.task_scores import scores_of_model
from tests.support.run_figures import evaluation

SCORES = {
    "task": "mrpc", "kind": "classification", "split": "validation", "rows": 408, "student": {"accuracy": 0.799},
    "intervals": {"accuracy": [0.757, 0.835]}, "chance": {"accuracy": 0.684}, "chose_step": True,
}  # fmt: skip
BEST = {"step": 400, "metric": "accuracy", "value": 0.799, "on_development": True}
TOO_GOOD = "too good: the same data chose the step"


def score_of(accuracy):
    runs = {"accuracy": Score.of_runs([accuracy])}
    return ColumnFigure.of_runs([accuracy], metrics=runs, chance=50.0, interval=[accuracy - 4, accuracy + 4])


def evaluated(**splits_by_task):
    """The scores of a student on the named splits of tasks, 80 on the first of them, then 81 and so on."""
    columns = []
    figures = {}
    for number, (task, splits) in enumerate(splits_by_task.items()):
        columns.append({"key": task, "title": task.upper(), "task": task, "kind": "classification",
                        "metric": "accuracy", "splits": splits})  # fmt: skip
        figures[task] = score_of(80.0 + number)
    models = [EvaluatedModel(name="teacher", columns=figures), EvaluatedModel(name="r/student", columns=figures)]
    notes = [
        "MRPC validation: 2 rows (the published set has 408)",
        "RTE validation: 2 rows (the published set has 277)",
    ]
    summary = Evaluation.read({"preset": "quick", "columns": columns, "notes": notes})
    summary.models = models
    return scores_of_model(models[1], summary)


def run_with(best=None, development=()):
    stage = {"name": "a", "method": "logits"}
    if best is not None:
        stage["best"] = best
    return Run.read({"name": "x", "stages": [stage], "evaluation": {"development": list(development)}})


def test_scores_of_an_evaluation_on_the_same_rows_are_not_in_the_card(tmp_path):
    scores = evaluated(mrpc=["validation"], rte=["validation"])
    card = model_card(run_with(BEST, [SCORES]), tmp_path, scores=scores)
    assert "| RTE | accuracy | 81.0 | 81.0 |" in card and "value: 0.81" in card
    assert "MRPC" not in card and "0.8\n" not in card, "neither the score nor the note on its rows"
    assert "- RTE validation: 2 rows" in card
    assert "Scores on rows that chose the step flatter the student, and are not in its card." in card

    # Nothing else is left out.
    clean = SCORES | {"chose_step": False}
    card = model_card(run_with(None, [clean]), tmp_path, scores=scores)
    assert "| MRPC | accuracy | 80.0 | 80.0 |" in card and "- MRPC validation: 2 rows" in card


def test_a_card_without_any_other_score_says_why(tmp_path):
    card = model_card(run_with(BEST, [SCORES]), tmp_path, scores=evaluated(mrpc=["validation"]))
    assert "Scores on tasks" not in card and "model-index" not in card
    assert "measured only on the text or the rows that chose its best step" in card
    # The run itself may have scored nothing.
    best = BEST | {"task": "mrpc", "split": "validation"}
    card = model_card(run_with(best), tmp_path, scores=evaluated(mrpc=["validation"]))
    assert "measured only on the text or the rows that chose its best step" in card


@pytest.mark.parametrize(("task", "split", "splits", "is_shown"), [
    ("mrpc", "validation", ["validation"], False),
    ("mrpc", "validation", ["validation@32"], False),
    ("mrpc", "validation", ["test", "validation"], False),
    ("mrpc", "validation", ["validation.de", "validation.en"], False),
    ("own", "mrpc:validation", ["validation"], False),
    ("mrpc", "validation", ["test"], True),
    ("mrpc", "validation", ["validation_mismatched"], True),
    ("mrpc", "validation.en", ["validation.de"], True),
    # Rows of a file took the place of the task's own.
    ("mrpc", "dev.tsv", ["validation"], True),
    ("rte", "validation", ["validation"], True),
    ("", "", ["validation"], True),
])  # fmt: skip
def test_rows_are_the_same_by_task_and_split(task, split, splits, is_shown):
    run = run_with(BEST | {"task": task, "split": split})
    rows = evaluated(mrpc=splits).without(run.splits_that_chose).rows
    assert bool(rows) is is_shown


def test_a_stage_with_a_student_of_its_own_has_not_chosen_the_step_of_the_runs(tmp_path):
    run = run_with(BEST | {"task": "mrpc", "split": "validation"})
    assert run.splits_that_chose == {("mrpc", "validation")}
    run.stages[0].student = run.student
    assert run.splits_that_chose == set()
    # Held-out text chose it.
    assert run_with(BEST | {"on_development": False}).splits_that_chose == set()


HELD_OUT = {"task": "classification", "metric": "accuracy", "rows": 400, "teacher": 0.9, "student": 0.8,
            "agreement": 0.85}  # fmt: skip
FIGURES = {
    "scores on these rows": {"development": [SCORES]},
    "scores on these rows ": {"task": HELD_OUT | {"chose_step": True}},
    "figures on this text": evaluation() | {"chose_step": True},
}
WITHOUT_CHOICE = [{"development": [SCORES | {"chose_step": False}]}, {"task": HELD_OUT}, evaluation()]


@pytest.mark.parametrize(("figures", "values"), FIGURES.items())
def test_a_note_and_a_word_beside_the_figure_tell_of_the_choice(copied, page_of, figures, values):
    [note] = [line for line in comparison_notes(values) if "best step" in line]
    assert note.startswith("The best step was chosen on ") and f"so the {figures.strip()} flatter the student." in note
    folder = copied(edit={"evaluation": values})
    page = page_of(folder, copied(name="other"))
    part = page.parts[0]
    assert f"({TOO_GOOD})" in str(part), "the table of folders"
    [run] = collect([folder])
    assert f"({TOO_GOOD})" in run_summary(run).result
    alone = page_of(folder).parts[0]
    assert alone.highlights[0].detail.endswith(TOO_GOOD) and alone.highlights[0].value != "–"
    assert note in str(alone.sections)
    notes = [row["note"] for row in DictReader(StringIO(comparison_csv(values, details=True)))]
    assert TOO_GOOD in str(notes)


@pytest.mark.parametrize("values", WITHOUT_CHOICE)
def test_nothing_is_said_of_other_figures(copied, values):
    assert "best step" not in str(comparison_notes(values))
    [run] = collect([copied(edit={"evaluation": values})])
    assert TOO_GOOD not in run_summary(run).result and TOO_GOOD not in comparison_csv(values, details=True)


def test_figures_that_a_card_leaves_out_have_no_note():
    for values in FIGURES.values():
        assert "best step" not in str(comparison_notes(RunEvaluation.read(values).without_rows_that_chose()))
    # Nothing was scored.
    unavailable = SCORES | {"student": {}, "unavailable": "The teacher has no head."}
    assert "best step" not in str(comparison_notes({"development": [unavailable]}))


def test_runs_beside_each_other_tell_which_of_them_chose_by_these_rows(copied):
    folders = []
    for number in range(4):
        scores = SCORES | {"teacher": {"accuracy": 0.9}, "chose_step": number == 1}
        folders.append(copied(name=f"run{number}", edit={"evaluation.development": [scores]}))
    runs = [(run.folder.name, run) for run in collect(folders)]
    blocks = list(run_blocks(runs))
    [table] = [block for block in blocks if isinstance(block, Table) and block.caption.startswith("Quality")]
    marked = [str(row[0]) for row in table.rows if TOO_GOOD in str(row)]
    assert marked == ["run1"]
    [figure, *_] = [block for block in blocks if isinstance(block, Figure) and block.title == "Quality of models"]
    assert "The same data chose the step, so the figure is too good: run1." in figure.caption


def test_the_value_of_the_best_step_names_its_rows_where_they_are_not_all():
    best = BestStep.read(BEST)
    assert "by the metric 'accuracy' (0.799). Scores" in str(best)
    best.scored_by_step = ScoredByStep(rows=1000, all_rows=9815)
    assert "by the metric 'accuracy' (0.799 on 1,000 of the 9,815 development rows). Scores" in str(best)
