"""Answers on development rows in a report: confusions, classes, disagreements; scores by step beside the terms."""

import io
import json
import re

import pytest

from limbeck.core.blocks import Figure, Notes, Table
from limbeck.core.console_blocks import console
from limbeck.core.escaping import TerminalConsole
from limbeck.report.rendering import render_html, render_markdown
from limbeck.report.sections import Highlight
from tests.support.page_document import Document

HOSTILE = "</td><script>alert('x')</script>| [a](javascript:b) \x1b[31m\u202e`{{ 7*7 }}`"
EXAMPLE = {
    "text": "He said so.",
    "pair": "He told us.",
    "label": "yes",
    "teacher": "yes",
    "student": "no",
    "distance": 0.91,
}
MRPC = {
    "task": "mrpc", "kind": "classification", "split": "validation", "rows": 10, "teacher_name": "runs/teacher/best",
    "teacher": {"accuracy": 0.9, "f1": 0.95}, "student": {"accuracy": 0.8, "f1": 0.855},
    "labels": ["no", "yes"], "confusion": [[3, 1], [1, 5]],
    "by_label": [{"label": "no", "rows": 4, "teacher": 0.8, "student": 0.75}],
    "disagreements": 3, "examples": [EXAMPLE],
}  # fmt: skip
PERSONS = [{"label": "PER", "rows": 7, "teacher": 0.9, "student": 0.7}]
PANX = {"task": "panx", "kind": "token_classification", "rows": 5, "student": {"entity_f1": 0.7}, "by_label": PERSONS}
LOG = [
    {"step": 1, "loss": 3.0, "loss_a": 1.0, "loss_b": 2.0},
    {"step": 2, "development_accuracy": 0.5, "development_f1": 0.6},
    {"step": 2, "loss": 2.0, "loss_a": 1.0, "loss_b": 1.0},
    {"step": 4, "development_accuracy": 0.8, "development_f1": 0.855},
]


APART = "Largest disagreements"


@pytest.fixture
def report_of(copied, page_of):
    def build(*development, log=()):
        folder = copied(edit={"evaluation.development": list(development)})
        if log:
            lines = "".join(json.dumps(line) + "\n" for line in log)
            (folder / "stages" / "1-minilmv2" / "log.jsonl").write_text(lines)
        return page_of(folder)

    return build


def blocks_of(page, kind, section="Answers on development rows"):
    sections = {built.title: built for part in page.parts for built in part.sections}
    return [block for block in sections[section].blocks if isinstance(block, kind)]


def test_rows_of_a_file_have_its_name_and_nothing_is_skipped_that_is_scored(copied, page_of):
    kind = "development row that resembles a training row (it shares at least half of its three-word sequences)"
    rows_of_a_file = {**MRPC, "task": "development", "split": "dev.tsv", "confusion": [[4, 0], [6, 0]]}
    report = {"counts": {kind: 1}, "examples": {kind: ["'He said so.'"]}}
    page = page_of(copied(edit={"evaluation.development": [rows_of_a_file], "corpus.report": report}))
    text = render_markdown(page, "figures").replace("\\", "")
    assert "1 development row resembles a training row, e.g. 'He" in text
    assert "Skipped text" not in text
    assert "accuracy on dev.tsv: 0.800 is meaningless" in text and "| Accuracy on dev.tsv |" in text
    assert "Scored on the 10 rows of dev.tsv, without fine-tuning" in text
    assert "The student predicts 'no' for every development row, so its scores are meaningless." in text


def test_a_run_is_judged_by_its_development_score(report_of):
    [part] = report_of(MRPC | {"rows": 20, "intervals": {"accuracy": [0.63, 0.94]}}).parts
    assert part.facts == ("A 2x4 student of teacher, taught by minilmv2, hidden_states.",)
    # Older records have no score at chance, but the confusion matrix tells how often the classes occur.
    details = "95 %: 0.630 to 0.940, over 20 rows; the most frequent class has 0.600"
    assert part.highlights[:2] == (
        Highlight("0.800", "accuracy on mrpc, validation", details),
        Highlight("88.9 %", "of the teacher's accuracy", "95 %: 70.0 to 104.4 %; the teacher has 0.900"),
    )
    labels = [highlight.label for highlight in part.highlights[2:]]
    assert labels == ["smaller", "as fast as the teacher", "of training"]
    assert "accuracy" not in part.subtitle, "a figure is not said twice"


def test_a_score_that_may_be_a_guesser_s_has_no_share(report_of):
    page = report_of(MRPC | {"rows": 20, "intervals": {"accuracy": [0.49, 0.94]}})
    quality, size = page.parts[0].highlights[:2]
    assert quality.detail == (
        "95 %: 0.490 to 0.940, over 20 rows; the teacher has 0.900; the most frequent class has 0.600"
    )
    assert size.label == "smaller"
    line = "The student's accuracy on mrpc, validation is not clearly above that of the most frequent class: 0.800"
    assert any(warning.startswith(line) for warning in page.warnings())


def test_one_answer_to_all_rows_is_a_warning_and_keeps_no_share(report_of):
    page = report_of(MRPC | {"confusion": [[4, 0], [6, 0]]})
    line = "The student predicts 'no' for every row of mrpc, validation, so its scores are meaningless."
    quality, size = page.parts[0].highlights[:2]
    assert line in page.warnings()
    assert (quality.value, quality.detail) == ("–", "0.800 is meaningless, since all rows get one answer")
    assert size.label == "smaller", "there is no share of the teacher's score"


def test_types_of_entities_have_both_scores_of_f1(report_of):
    tables = blocks_of(report_of(MRPC, PANX), Table)
    assert [table.caption for table in tables] == ["mrpc, validation, label by label", "panx, label by label"]
    assert [[str(cell) for cell in row] for row in tables[-1].rows] == [["PER", "7", "0.900", "0.700"]]


def test_confusions_are_drawn_as_shares_with_their_counts_below(report_of):
    [figure] = blocks_of(report_of(MRPC), Figure)
    assert figure.drawing.values == [[0.75, 0.25], [1 / 6, 5 / 6]]
    assert [[str(cell) for cell in row] for row in figure.data.rows] == [["no", "3", "1"], ["yes", "1", "5"]]
    assert "no: 3 of 4 right; yes: 5 of 6 right" in figure.description


def test_many_classes_are_a_folded_table_and_no_drawing(report_of):
    names = [f"c{number}" for number in range(31)]
    many = {"labels": names, "confusion": [[1] * 31] * 31, "by_label": [{"label": name} for name in names]}
    page = report_of(MRPC | many)
    assert not blocks_of(page, Figure)
    assert [
        table.folded for table in blocks_of(page, Table) if table.caption == "mrpc, validation, label by label"
    ] == [True]


def test_disagreements_have_row_label_and_both_answers(report_of):
    long = EXAMPLE | {"text": "word " * 200, "pair": ""}
    page = report_of(MRPC | {"examples": [EXAMPLE, long]})
    [table] = (table for table in blocks_of(page, Table, APART) if table.caption.startswith("mrpc"))
    first = [section.title for section in page.parts[0].sections][:3]
    assert first == ["Overview", "Teacher and student", APART]
    shown, cut = ([str(cell) for cell in row] for row in table.rows)
    assert shown == ["He said so. ‖ He told us.", "yes", "yes", "no", "0.910"]
    assert len(cut[0]) == 240 and cut[0].endswith("…")
    assert any("disagree on 3 rows (30.0%)" in line for notes in blocks_of(page, Notes, APART) for line in notes.lines)


def test_on_a_narrow_page_a_text_stands_above_named_answers(report_of):
    page = report_of(MRPC)
    rows = [table for table in re.findall("<table.*?</table>", render_html(page), re.DOTALL) if "He said so." in table]
    assert rows[0].startswith('<table class="texts">')
    assert re.findall('data-heading="(.*?)"', rows[0]) == ["Label", "Teacher", "Student", "Distance"]
    tables = [block for part in page.parts for section in part.sections for block in section.blocks]
    assert sum(isinstance(table, Table) and table.of_texts for table in tables) == 1, "figures stay in columns"


def test_the_score_by_step_stands_beside_the_terms(report_of):
    page = report_of(MRPC, log=LOG)
    titles = [figure.title for figure in blocks_of(page, Figure, "Training")]
    scores = next(
        figure for figure in blocks_of(page, Figure, "Training") if "Scores on development rows" in figure.title
    )
    assert [series.label for series in scores.drawing.series] == ["accuracy", "F1"]
    assert scores.drawing.series[0].points.tolist() == [[2.0, 0.5], [4.0, 0.8]]
    assert titles.index(scores.title) == 1, "behind the loss"


def test_texts_of_rows_stay_text_in_every_form(report_of):
    names = {"task": HOSTILE, "split": HOSTILE, "teacher_name": HOSTILE, "labels": [HOSTILE, "b"]}
    figures = {
        "by_label": [{"label": HOSTILE, "rows": 1}],
        "examples": [dict.fromkeys(EXAMPLE, HOSTILE) | {"distance": 1}],
    }
    page = report_of(MRPC | names | figures)
    document = Document(render_html(page))
    assert "script" not in {tag for tag, _, _ in document.elements}
    assert not any(a["href"].startswith("javascript") for a, _ in document.all("a"))
    markdown = render_markdown(page, "figures")
    assert "<script>" not in markdown and not re.search(r"(?<!\\)\]\(javascript", markdown)
    assert "\x1b" not in markdown and "\u202e" not in markdown
    screen = TerminalConsole(width=120, record=True, file=io.StringIO())
    screen.print(console(*blocks_of(page, Table), *blocks_of(page, Table, APART), *blocks_of(page, Notes, APART)))
    shown = screen.export_text(styles=True)
    assert "\u202e" not in shown and "alert('x')" in shown and "\x1b[31m" not in shown
