"""The rows that a run's models are scored on: their name, and a student that gives all of them the same answer."""

from limbeck.core.records import DevelopmentFigures

DEVELOPMENT = "development"
"""Name of the task of development rows that a recipe gives by their file."""


def rows_title(scores: DevelopmentFigures) -> str:
    """Name the rows that a run's models are scored on: their file, or a task and its split."""
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
    # Older records have no `only_answer`. In their matrix, a column counts the rows that the student gives a class.
    predicted_classes = set()
    for class_counts in scores.confusion:
        for class_index, count in enumerate(class_counts):
            if count:
                predicted_classes.add(class_index)
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
