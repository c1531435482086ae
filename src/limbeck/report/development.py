"""A run's answers on development rows: confused classes, F1 by label, and the largest disagreements of both models.

*Development rows* are labelled rows that were not trained on. A *confusion matrix* counts them by their true class (its
rows) and the class that the student predicts (its columns).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from limbeck.core import records
from limbeck.core.blocks import AnyCell, Block, Cell, Figure, Notes, Table, counted, number
from limbeck.core.escaping import one_line
from limbeck.report.figures import heat_figure
from limbeck.report.plots import Heat
from limbeck.report.scored_rows import rows_title

_DISTANCE_OF_SCORES = (
    "Where a distance is not the difference of the two scores, each score is taken less the mean of the model's scores "
    "of the query, because only the order of a query's documents counts."
)
"""The note on disagreements of two models that rank."""
_MOST_CLASSES = 30
"""The most classes of a drawn confusion matrix; with more, its cells would be too small to be seen."""
_MOST_LETTERS = 240
"""The most letters of a text in the table of disagreements."""


def disagreement_blocks(evaluation: records.RunEvaluation) -> Iterator[Block]:
    """List the largest disagreements of student and teacher: on rows of tasks, then on pairs of sentences."""
    for scores in evaluation.development:
        title = rows_title(scores)
        if scores.disagreements is not None and scores.rows:
            count_phrase = counted(scores.disagreements, "row")
            share = scores.disagreements / scores.rows
            yield Notes((f"{title}: student and teacher disagree on {count_phrase} ({share:.1%}).",))
        if scores.examples:
            caption = f"{title}: rows on which student and teacher disagree most"
            yield _examples_table(caption, ("Row", "Label"), scores.examples)
            if scores.queries is not None:
                yield Notes((_DISTANCE_OF_SCORES,))
    if evaluation.agreement is not None and evaluation.agreement.examples:
        caption = "Held-out sentence pairs whose similarity student and teacher rank most differently"
        yield _examples_table(caption, ("Pair", "From"), evaluation.agreement.examples)


def _examples_table(caption: str, first_headings: tuple[str, str], examples: Sequence[records.Disagreement]) -> Table:
    """List disagreements: the text or pair, its label or kind, both answers, and the distance between them.

    Args:
        caption: Caption of the table.
        first_headings: Headings of the columns of texts and of labels.
        examples: The disagreements.
    """
    rows: list[tuple[AnyCell, ...]] = []
    for example in examples:
        text = _cut(example.text)
        if example.pair:
            text += f" ‖ {_cut(example.pair)}"
        answers = (_cut(example.teacher), _cut(example.student))
        rows.append((text, _cut(example.label), *answers, _score(example.distance)))
    table = Table(caption, (*first_headings, "Teacher", "Student", "Distance"), tuple(rows), of_texts=True)
    _, label_heading = first_headings
    return table.with_words(label_heading, "Teacher", "Student")


def _cut(text: str) -> str:
    """Return a text on one line, of at most `_MOST_LETTERS` letters."""
    line = one_line(text)
    if len(line) <= _MOST_LETTERS:
        return line
    return f"{line[: _MOST_LETTERS - 1]}…"


def _score(value: float | None) -> Cell:
    return Cell(value, "{:.3f}")


def answer_blocks(evaluation: records.RunEvaluation) -> Iterator[Block]:
    """Show the confusion matrix and the F1 of each label, for each task; its scores are in another section."""
    for scores in evaluation.development:
        if scores.confusion and len(scores.labels) <= _MOST_CLASSES:
            yield _confusion_figure(scores)
        if scores.by_label:
            yield _labels_table(scores)


def _confusion_figure(scores: records.DevelopmentFigures) -> Figure:
    """Draw the confusion matrix: for each true class, the shares of its rows by predicted class."""
    names = scores.labels
    shares: list[list[float | None]] = []
    words = []
    rows: list[tuple[AnyCell, ...]] = []
    for class_index, (name, counts) in enumerate(zip(names, scores.confusion, strict=True)):
        total = sum(counts)
        # A class without rows has no shares.
        if total:
            shares.append([count / total for count in counts])
        else:
            shares.append([None] * len(counts))
        words.append(f"{name}: {counts[class_index]:,.0f} of {total:,.0f} right")
        rows.append((name, *map(number, counts)))

    # The picture has shares, since classes differ in size; the table below it has counts.
    heat = Heat(
        shares,
        row_names=names,
        column_names=names,
        row_title="true class",
        column_title="predicted class",
        low=0.0,
        high=1.0,
        label="share of the true class",
    )
    title = f"{rows_title(scores)}: confusion matrix of the student"
    figure = heat_figure(title, heat, f"Confusion matrix of {len(names)} classes. {'; '.join(words)}.")
    data = Table("Rows of each true class, by predicted class", ("", *names), tuple(rows))
    return replace(figure, data=data)


def _labels_table(scores: records.DevelopmentFigures) -> Table:
    rows: list[tuple[AnyCell, ...]] = [
        (label.label, number(label.rows), _score(label.teacher), _score(label.student)) for label in scores.by_label
    ]
    headings = ("", "Count", "Teacher's F1", "Student's F1")
    caption = f"{rows_title(scores)}, label by label"
    return Table(caption, headings, tuple(rows), folded=len(rows) > _MOST_CLASSES)
