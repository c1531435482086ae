"""Labelled rows and a method that reads them as text: the run says that its student has no head."""

import json
from io import StringIO

import pytest
from rich.console import Console

import limbeck
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.report.quality_notes import comparison_notes
from tests.support.models import make_teacher

STUDENT = {"shape": {"layers": 2, "hidden": 24, "heads": 4, "ffn": 48}}
LABELS = {"id2label": {0: "bad", 1: "good"}}
TAGS = {"id2label": {0: "O", 1: "B-PER"}}
NO_CLASSES = (
    "hidden_states teaches no classes, so the labels of the rows are not used, and the student has no head. To train a "
    "head, choose a method that teaches the teacher's scores, such as output_distribution or mlkd_bert."
)


def write_rows(path, *rows):
    """Write rows, and return the file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def recipe_of(folder, head, changes, task, rows, *methods):
    """A recipe on labelled rows, with a tiny teacher that has the head of their task."""
    return {
        "output": str(folder / "run"),
        "teacher": {"model": str(make_teacher(folder, head=head, **changes))},
        "student": STUDENT,
        "corpus": {"sources": [write_rows(folder / "rows.jsonl", *rows)], "task": task, "length": 16},
        "stages": [
            {"name": str(number), "method": {"name": name}, "training": {"max_steps": 1}}
            for number, name in enumerate(methods)
        ],
        "evaluation": {"speed": False},
    }


def head_line(recipe):
    """The line of `limbeck validate` on the head."""
    return plan_run(load_recipe(recipe)).summary().get("head")


REVIEWS = [{"text": f"the model is {number}", "label": number % 2} for number in range(60)]


@pytest.mark.parametrize(
    ("head", "changes", "task", "row", "line"),
    [
        ("classification", LABELS, {}, {"text": "the model", "label": "bad"}, NO_CLASSES),
        ("token_classification", TAGS, {}, {"tokens": ["the", "model"], "tags": [0, 1]}, "teaches no tags, "),
        (
            "question_answering",
            {},
            {"stride": 4},
            {"question": "what is it", "context": "the model", "answers": {"text": ["model"], "answer_start": [4]}},
            "teaches no answers, ",
        ),
        (
            "ranking",
            {"num_labels": 1},
            {"document_columns": ["good", "bad"]},
            {"query": "what is it", "good": "the model", "bad": "the text"},
            "teaches no scores of documents, so the labels of the rows are not used, and the student has no head. To "
            "train a head, choose a method that teaches the teacher's scores, such as reranker.",
        ),
    ],
)
def test_a_method_for_text_is_said_to_leave_labels_out(tmp_path, head, changes, task, row, line):
    recipe = recipe_of(tmp_path, head, changes, {"kind": head, **task}, [row] * 20, "hidden_states")
    assert line in head_line(recipe)


def test_rows_without_labels_and_several_methods_have_words_of_their_own(tmp_path):
    task = {"kind": "classification", "labelled": False}
    recipe = recipe_of(tmp_path, "classification", LABELS, task, REVIEWS, "minilmv2", "hidden_states")
    assert head_line(recipe).startswith("minilmv2 and hidden_states teach no classes, so the student has no head.")


def test_a_head_that_any_stage_trains_needs_no_line(tmp_path):
    task = {"kind": "classification"}
    recipe = recipe_of(tmp_path, "classification", LABELS, task, REVIEWS, "hidden_states", "output_distribution")
    assert head_line(recipe) is None


def test_the_run_says_so_before_its_training_and_below_its_table(tmp_path):
    output = StringIO()
    recipe = recipe_of(tmp_path, "classification", LABELS, {"kind": "classification"}, REVIEWS, "hidden_states")
    result = limbeck.distill(recipe, console=Console(file=output, width=400))
    lines = output.getvalue().splitlines()
    [line] = [number for number, text in enumerate(lines) if text == NO_CLASSES]
    [corpus] = [number for number, text in enumerate(lines) if text.startswith("Corpus: ")]
    assert line < corpus
    assert f"No task scores: {NO_CLASSES}" in comparison_notes(result.record["evaluation"])
    assert NO_CLASSES.partition(". ")[0] in (result.student / "README.md").read_text().replace("\\_", "_")
