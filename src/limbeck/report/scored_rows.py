"""The labelled rows that a run's models are scored on: their name, and a student with one answer to all of them.

A student that gives all rows the same answer has learned nothing: its scores are called meaningless.
"""

from limbeck.core.records import DevelopmentFigures, TaskFigures

DEVELOPMENT = "development"
"""The task's name in records, where a recipe gives development rows by a file and not by the name of a task."""
MEANINGLESS = "meaningless, since all rows get one answer"
"""What is said of the score of such a student."""
TOO_GOOD = "too good: the same data chose the step"
"""What is said of a figure on rows or text that decided which step's student was kept."""


def rows_title(scores: DevelopmentFigures) -> str:
    """Return the name of the scored rows: that of their file, or their task and its split, if there are several."""
    if scores.task == DEVELOPMENT:
        return scores.split or "development rows"
    return f"{scores.task}, {scores.split}" if scores.split else scores.task


def only_answer(scores: DevelopmentFigures) -> str | None:
    """Return the one answer that a student gives to all rows; None where it gives several."""
    if scores.only_answer is not None:
        return scores.only_answer
    # With fewer than two classes, a student has no other answer to give.
    if len(scores.labels) < 2:
        return None
    # Older records have no `only_answer`, but the confusion matrix tells: `confusion[i][j]` is the number of rows of
    # true class i that the student predicts as class j.
    predicted_classes = set()
    for counts_of_true_class in scores.confusion:
        for predicted_class, count in enumerate(counts_of_true_class):
            if count:
                predicted_classes.add(predicted_class)
    if len(predicted_classes) == 1:
        return scores.labels[predicted_classes.pop()]
    return None


def one_answer_line(scores: DevelopmentFigures) -> str | None:
    """Return the warning that a student's scores are meaningless since it gives all rows one answer, if it does."""
    answer = only_answer(scores)
    if answer is None:
        return None
    row_phrase = f"row of {rows_title(scores)}"
    if scores.task == DEVELOPMENT:
        row_phrase = "development row"
    return f"The student predicts '{answer}' for every {row_phrase}, so its scores are meaningless."


def one_answer_line_of_task(task: TaskFigures) -> str | None:
    """Return the same warning for rows that were held out from a task's training files."""
    if not task.only_answer:
        return None
    rows = "held-out row" if task.stage is None else f"row of stage '{task.stage}'"
    return f"The student gives every {rows} the same answer, so its scores are meaningless."
