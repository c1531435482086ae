"""Question answering: the place of an answer in a context is predicted, window by window."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from limbeck.core import intervals
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.labelled_rows import NO_ANSWER, Label, LabelledRow
from limbeck.corpus.rows.row_kind import RowEncoder
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tokens.answer_windows import NO_SPAN, AnswerWindow, AnswerWindows, Question
from limbeck.corpus.tokens.encoded_rows import TOKEN_TYPES
from limbeck.kinds.answer_decoding import decode_answers
from limbeck.kinds.answer_scores import THRESHOLD, answer_figures, score_answers
from limbeck.kinds.beside_teacher import Disagreements
from limbeck.kinds.chance_scores import chance_of_answers
from limbeck.kinds.kind import HeldOutRows, Kind, LabelTerm, Metric, Outputs
from limbeck.kinds.reading import NO_PLACE, RowSource
from limbeck.kinds.registry import register_as_kind
from limbeck.kinds.task import AnswerPrediction, Predictions, Task
from limbeck.kinds.usage import HeadUsage

Answers = Mapping[str, AnswerPrediction]

_NO_ANSWER_IN_WORDS = "no answer"


def _exact_match(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    return answer_figures(cast(Answers, predictions), rows, task)["exact_match"]


def _f1_answer(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    return answer_figures(cast(Answers, predictions), rows, task)["f1_answer"]


@register_as_kind()
class QuestionAnswering(Kind):
    """An answer within a context, or none; a prediction is an answer by row id."""

    name = "question_answering"
    metrics: Mapping[str, Metric] = {"exact_match": _exact_match, "f1_answer": _f1_answer}
    label_type = pa.list_(pa.int64(), 2)
    has_windows = True
    scoring_types: Mapping[str, pa.DataType] = {
        "row": pa.string(),
        "first": pa.int32(),
        "offsets": pa.list_(pa.int32()),
    }
    held_out_metric = "exact_span"
    # By the first rules the best starts and ends were those of the context alone.
    scoring_version = 2
    usage = HeadUsage(
        texts='"Who reads?", "The student reads what the teacher reads."',
        torch=(
            "start, end = output.start_logits.argmax(), output.end_logits.argmax()\n"
            "print(tokenizer.decode(batch.input_ids[0, start : end + 1]))"
        ),
        onnx=(
            'start, end = session.run(["start_logits", "end_logits"], inputs)\n'
            'print(tokenizer.decode(batch["input_ids"][0, start.argmax() : end.argmax() + 1]))'
        ),
    )

    def read(self, row: PlacedRow, source: RowSource) -> Sequence[LabelledRow]:
        """Return a question on a context, with its answers."""
        columns = source.columns
        source.require(row, [columns.context, columns.question])
        answers: list[tuple[str, int]] = []
        if source.labelled:
            answers = source.answers(row, columns.answers)
        context = source.context(row, columns.context)
        question = source.text(row, columns.question)
        if context is None or question is None:
            return []

        texts = []
        starts = []
        for text, start in answers:
            place = source.place_answer(context, text, start, row.where)
            # The source has noted an answer that is not in the context; a row with one is left out.
            if place is None:
                return []
            texts.append(text)
            starts.append(place)
        label = _label(texts, starts) if source.labelled else None
        row_id = source.row_id(row, columns.id or "id")
        source.claim_id(row_id, row.where)
        labelled_row = LabelledRow(
            id=row_id,
            text=context,
            pair=question,
            label=label,
            answers=tuple(texts),
            answer_starts=tuple(starts),
            language=source.language,
        )
        return [labelled_row]

    def content(self, row: LabelledRow) -> list[Any]:
        """Return the values of a row without the label, which follows from the answers."""
        return super().content(replace(row, label=None))

    def encoder(self, tokenizer: Any, length: int, stride: int, *, paired: bool) -> RowEncoder:
        """Return what cuts questions and contexts into windows."""
        return AnswerWindows(tokenizer, length, stride)

    def encode_for_scoring(
        self, encoder: Any, rows: Sequence[LabelledRow], report: SourceReport, first: int
    ) -> dict[str, Any]:
        """Return the windows of all rows as columns: tokens, the row's id, and what answers are decoded by.

        The column `first` has the index of the context's first token in its window. `offsets` has the first and the end
        character of each token of the context, flat. The argument `first`, the number of the first row, is not needed.
        """
        windows = encoder.cut([Question(row.id, row.pair or "", row.text) for row in rows], report)
        return {
            "input_ids": [window.input_ids for window in windows],
            TOKEN_TYPES: [window.token_type_ids for window in windows],
            "row": [window.row for window in windows],
            "first": [window.first for window in windows],
            "offsets": [window.offsets.ravel() for window in windows],
        }

    def model_labels(self, batch: dict[str, Any]) -> None:
        """Replace the labels, `[rows, 2]`, by the two arguments that question answering models take."""
        ends = batch.pop("labels")
        batch["start_positions"] = ends[:, 0]
        batch["end_positions"] = ends[:, 1]

    def decode(
        self, outputs: Outputs, rows: Sequence[LabelledRow], task: Task, tokens: Callable[[], Any]
    ) -> Predictions:
        """Return the best answer of each question, by row id."""
        # `tokens` returns the data set of windows that `encode_for_scoring` made. Decoding needs only the characters
        # that each token stands for, so the tokens and the label are left empty.
        windows = []
        # Without a format, the rows are plain Python values.
        for item in tokens().select_columns(list(self.scoring_types)).with_format(None):
            window = AnswerWindow(
                row=item["row"],
                input_ids=[],
                token_type_ids=None,
                first=item["first"],
                offsets=np.array(item["offsets"], np.int64).reshape(-1, 2),
                label=NO_SPAN,
            )
            windows.append(window)
        contexts = {row.id: row.text for row in rows}
        starts, ends = outputs
        return decode_answers(windows, starts, ends, contexts, answerable_only=task.answerable_only)

    def check_labelled(self, rows: Sequence[LabelledRow]) -> bool:
        """Whether rows can be scored: a question without an answer is a gold answer too."""
        return True

    def check_predictions(self, predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> None:
        """Refuse predictions that are not by row id; a question without a prediction scores 0."""
        if not isinstance(predictions, Mapping):
            raise ValueError(f"predictions of {task.title} must be a dictionary from the id of each row to its answer")

    def more_figures(self, predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> dict[str, float]:
        """Return all figures of SQuAD's script."""
        return answer_figures(cast(Answers, predictions), rows, task)

    def interval(
        self, metric: str, value: float, task: Task, rows: Sequence[LabelledRow], predictions: Predictions
    ) -> intervals.Interval | None:
        """Return Wilson's interval of exact match, and that of a mean of shares for F1, see `of_mean_share`."""
        if metric == "exact_match":
            return intervals.of_share(value, len(rows))
        answers = cast(Answers, predictions)
        f1 = score_answers(answers, rows, task).f1
        # An answer with high null odds counts as "no answer". Its F1 is 1 where the question has no answer, else 0.
        if not task.answerable_only:
            says_no_answer = np.array([row.id in answers and answers[row.id].null_odds > THRESHOLD for row in rows])
            f1_of_no_answer = np.array([0.0 if row.answers else 1.0 for row in rows])
            f1 = np.where(says_no_answer, f1_of_no_answer, f1)
        return intervals.of_mean_share(f1.tolist())

    def chance(self, rows: Sequence[LabelledRow], task: Task) -> dict[str, float]:
        """Return the scores of no answer to every question, where questions may have no answer."""
        if task.answerable_only:
            return {}
        return chance_of_answers(np.array([bool(row.answers) for row in rows]))

    def only_answer(self, predictions: Predictions, task: Task) -> str | None:
        """Return "no answer" if no question is given an answer."""
        answers = cast(Answers, predictions)
        has_answers = any(_text(answer, task) for answer in answers.values())
        if len(answers) < 2 or has_answers:
            return None
        return _NO_ANSWER_IN_WORDS

    def words(self, prediction: Any, row: LabelledRow, task: Task) -> str:
        """Return the text of an answer."""
        return str(prediction) or _NO_ANSWER_IN_WORDS

    def label_words(self, row: LabelledRow, task: Task) -> str:
        """Return all gold answers, each once."""
        return " / ".join(dict.fromkeys(row.answers)) or _NO_ANSWER_IN_WORDS

    def disagreements(
        self,
        rows: Sequence[LabelledRow],
        predictions: tuple[Predictions, Predictions],
        outputs: tuple[Outputs, Outputs],
        task: Task,
    ) -> Disagreements | None:
        """Compare the student's answers with the teacher's.

        The distance of two answers, 0 to 1, is 1 less the F1 of the student's answer with the teacher's as the gold
        answer. They differ if they are not an exact match. `outputs` is not needed: the signature is that of all kinds.
        """
        student_answers, teacher_answers = (cast(Answers, answers) for answers in predictions)
        student_texts = [_text(student_answers.get(row.id), task) for row in rows]
        teacher_texts = [_text(teacher_answers.get(row.id), task) for row in rows]

        # The teacher's answers stand in the place of the gold ones. Where the teacher gives no answer, the question has
        # none.
        rows_by_teacher = []
        for row, text in zip(rows, teacher_texts, strict=True):
            has_answer = bool(text) or task.answerable_only
            rows_by_teacher.append(replace(row, answers=(text,) if has_answer else ()))
        answers = {row.id: AnswerPrediction(text) for row, text in zip(rows, student_texts, strict=True)}
        scores = score_answers(answers, rows_by_teacher, task)
        return Disagreements(
            distances=1 - scores.f1,
            differ=scores.exact < 1,
            student=[text or _NO_ANSWER_IN_WORDS for text in student_texts],
            teacher=[text or _NO_ANSWER_IN_WORDS for text in teacher_texts],
        )

    def held_out_predictions(self, logits: Any) -> Any:
        """Return the first and last token of the answer in each window, `[windows, 2]`."""
        return logits.argmax(-1)

    def held_out_score(self, predicted: NDArray[Any], labels: NDArray[Any]) -> float | None:
        """Return the share of windows whose start and end are both right."""
        return float(np.mean((predicted == labels).all(-1), dtype=np.float32))

    def held_out_chance(self, labels: NDArray[Any], rows: HeldOutRows) -> dict[str, float]:
        """Return the share of windows without the whole answer, which are right without an answer."""
        has_no_span = (labels == NO_SPAN).all(-1)
        return {self.held_out_metric: float(has_no_span.mean())}

    def hard_label(self) -> LabelTerm | None:
        """Return the cross entropy with both ends of the answer."""
        return LabelTerm("hard_label_ce")

    def soft_label(self) -> LabelTerm:
        """Return the divergence from the teacher's distributions of start and end over the tokens."""
        return LabelTerm("soft_label_kl", has_temperature=True)


def _label(texts: Sequence[str], starts: Sequence[int]) -> Label | None:
    """Return the first and the end character of the first answer in the context.

    Args:
        texts: The gold answers; empty for a question without an answer.
        starts: The first character of each, or `NO_PLACE` for one that the context does not contain.

    Returns:
        The label; `NO_ANSWER` for a question without an answer, None for an answer without a place.
    """
    if not texts:
        return NO_ANSWER
    if starts[0] == NO_PLACE:
        return None
    return (starts[0], starts[0] + len(texts[0]))


def _text(answer: AnswerPrediction | None, task: Task) -> str:
    """Return the text of an answer; the empty text where the model gives none or its null odds are too high."""
    if answer is None:
        return ""
    is_emptied = answer.null_odds > THRESHOLD and not task.answerable_only
    if is_emptied:
        return ""
    return answer.text
