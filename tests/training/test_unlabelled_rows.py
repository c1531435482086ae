"""Rows without labels: a fine-tuned teacher teaches what it says of them, and is what the student is measured by."""

import io
import json
import random

import numpy as np
import pytest
import torch
from rich.console import Console

import limbeck
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.named_sources import open_rows, open_source
from limbeck.errors import CorpusError, RecipeError
from limbeck.models.loading import load_model
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.evaluation import evaluate_student
from tests.support.models import make_teacher, tiny_tokenizer

WORDS = ("the", "of", "and", "to", "in", "is", "for", "that", "with", "model", "teacher", "student", "layer", "text")
DRAW = random.Random(0)
TEXTS = [" ".join(DRAW.choices(WORDS, k=9)) for _ in range(60)]
PAIRS = [(text, " ".join(DRAW.choices(WORDS, k=5))) for text in TEXTS]
QUESTIONS = [{"question": "what is it", "context": text} for text in TEXTS]
TAGS = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}}
FLAGS = {"num_labels": 3, "problem_type": "multi_label_classification"}


def distil(tmp_path, head, corpus, changes, *overrides, **options):
    """A student of a tiny teacher with a head, after three steps of its last stage."""
    teacher = make_teacher(tmp_path, head=head, **changes)
    overrides = ["evaluation.speed=false", *overrides]
    return limbeck.distill(
        teacher=teacher, student=2, corpus=corpus, output=tmp_path / "run", steps=3, overrides=overrides, **options
    )


@pytest.mark.parametrize(
    ("head", "corpus", "changes"),
    [
        ("classification", TEXTS, {"num_labels": 3}),
        ("classification", PAIRS, {"num_labels": 3}),
        ("multi_label", TEXTS, FLAGS),
        ("regression", TEXTS, {"num_labels": 1}),
        ("regression", PAIRS, {"num_labels": 1}),
        ("token_classification", TEXTS, TAGS),
        ("question_answering", QUESTIONS, {}),
    ],
)
def test_every_kind_learns_from_the_teacher_alone(tmp_path, head, corpus, changes):
    result = distil(tmp_path, head, corpus, changes)
    figures = result.record["evaluation"]["task"]
    assert figures["labelled"] is False and figures["rows"] >= 6 and "agreement" in figures
    assert not {"student", "teacher"} & figures.keys(), "there are no labels to score by"
    views = result.record["corpus"]["views"]
    assert result.record["corpus"]["documents"] == 60 and all(view["labelled"] is False for view in views)
    terms = [set(stage["final_terms"]) for stage in result.record["stages"]]
    assert "soft_label" in terms[-1] and "sample_contrastive" not in terms[-1]
    card = (result.student / "README.md").read_text()
    assert "The rows have no labels" in card and "on held-out rows without labels" in card


def test_the_agreement_is_that_of_the_two_models_themselves(tmp_path):
    result = distil(tmp_path, "classification", TEXTS, {"num_labels": 3}, "corpus.held_out=0.5")
    teacher = load_model(tmp_path / "teacher-bert", head="classification")
    student = load_model(result.student, head="classification")
    held_out = limbeck.plan(tmp_path / "run" / "recipe.yaml").stage(1).corpus.held_out
    tokenizer = tiny_tokenizer()
    alike = []
    for row in held_out:
        inputs = torch.tensor([list(row["input_ids"])])
        assert inputs[0, 0] == tokenizer.cls_token_id and "labels" not in row
        with torch.no_grad():
            alike.append(teacher(inputs).logits.argmax() == student(inputs).logits.argmax())
    assert result.record["evaluation"]["task"]["agreement"] == pytest.approx(np.mean(alike))


def test_the_progress_names_the_scoring_of_held_out_rows_behind_the_speed(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(
        "limbeck.training.distil.evaluate_student",
        lambda run, report: evaluate_student(run, lambda share, step, count=None: steps.append((share, step))),
    )
    overrides = ["evaluation.speed=true", "evaluation.latency_seconds=0.01", "evaluation.length=8"]
    console = Console(file=io.StringIO(), width=80)
    distil(tmp_path, "classification", TEXTS, {"num_labels": 3}, *overrides, console=console)
    parts = "latency, making the untrained start and answers to the rows of the task"
    assert f"Comparing teacher and student: {parts}." in console.file.getvalue().splitlines()
    assert steps[:2] == [(0.0, "loading both models"), (0.0, "latency, 1 x 8 tokens")]
    assert list(dict.fromkeys(step for _, step in steps))[-7:] == [
        "latency, 32 x 8 tokens",
        "making the untrained start",
        "scoring held-out rows",
        "scoring held-out rows, the student",
        "scoring held-out rows, the teacher",
        "scoring held-out rows, untrained start 1 of 2",
        "scoring held-out rows, untrained start 2 of 2",
    ]
    assert steps[-1][0] == 1


def test_a_plain_text_file_has_a_text_a_line(tmp_path):
    text = tmp_path / "plain.txt"
    text.write_text("\n".join([*TEXTS, "", "a\ttab stays in its line"]) + "\n")
    result = distil(tmp_path, "classification", text, {"num_labels": 3})
    assert result.record["corpus"]["documents"] == 61
    summary = plan_run(load_recipe(tmp_path / "run" / "recipe.yaml")).summary()
    assert summary["labels of stage 2"] == "none: the student learns from the teacher alone"


def test_a_text_a_line_is_no_document_of_several_lines(tmp_path):
    """Notes on the layout of documents would be wrong, and the cache keeps its name."""
    text = tmp_path / "plain.txt"
    text.write_text("\n".join(TEXTS) + "\n")
    report = SourceReport()
    source = open_rows(str(text), text_of_line="text")
    assert [row.values["text"] for row in source.rows(report)] == TEXTS and report.counts == {}
    assert source.fingerprint() == ["lines", open_source(str(text)).fingerprint()]
    long = tmp_path / "long.txt"
    long.write_text("\n".join(TEXTS * 20) + "\n")
    assert len(list(open_rows(str(long), text_of_line="text").rows(report))) == 1200 and report.counts == {}


def test_words_of_a_text_are_scored_as_words_of_a_list_are(tmp_path):
    teacher = make_teacher(tmp_path, head="token_classification", **TAGS)
    stages = [{"method": {"name": "mlkd_bert", "stage": 2}, "training": {"max_steps": 1}}]
    rows = []
    for column, value in (("tokens", ["the", "model", ",", "it", "is", "."]), ("text", "the model, it is.")):
        source = tmp_path / f"{column}.jsonl"
        source.write_text(json.dumps({column: value}) + "\n")
        task = {"kind": "token_classification", "labelled": False, "tokens_column": column}
        corpus = {"sources": source, "task": task, "held_out": 0}
        recipe = {"teacher": teacher, "student": 2, "corpus": corpus, "stages": stages, "output": tmp_path / "x"}
        rows.append(limbeck.plan(recipe).stage(0).corpus.train[0])
    row, row_of_text = rows
    assert list(row["input_ids"]) == list(row_of_text["input_ids"])
    # Special tokens have no place among the scores; the first token of each word has one.
    assert list(row["labels"]) == list(row_of_text["labels"]) == [-100, *[0] * 6, -100]


def test_development_rows_keep_their_labels(tmp_path):
    development = tmp_path / "development.jsonl"
    rows = [{"text": f"we are {number}", "label": number % 3} for number in range(9)]
    development.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = distil(
        tmp_path, "classification", TEXTS, {"num_labels": 3}, f"corpus.development={json.dumps([str(development)])}"
    )
    (figures,) = result.record["evaluation"]["development"]
    assert figures["rows"] == 9 and figures["student"]["accuracy"] is not None


@pytest.mark.parametrize(
    ("method", "term"),
    [
        ({"name": "distilbert", "hard_label_weight": 1}, "hard_label"),
        ({"name": "bert_pkd", "soft_label_share": 0.2, "mapping": "uniform"}, "hard_label"),
        ({"name": "mlkd_bert", "stage": 2, "sample_contrastive_weight": 1}, "sample_contrastive"),
    ],
)
def test_labels_that_a_recipe_asks_for_are_refused(tmp_path, method, term):
    teacher = make_teacher(tmp_path, head="classification", num_labels=3)
    source = tmp_path / "plain.txt"
    source.write_text("\n".join(TEXTS))

    def plan(method):
        task = {"kind": "classification", "labelled": False}
        stages = [{"method": method, "training": {"max_steps": 1}}]
        return limbeck.plan(
            {"teacher": teacher, "student": 2, "corpus": {"sources": source, "task": task}, "stages": stages}
            | {"output": tmp_path / "x"}
        )

    with pytest.raises(RecipeError, match=f"the term '{term}' learns from labels, but the rows have none"):
        plan(method)
    by_default = plan({key: value for key, value in method.items() if key in ("name", "stage", "mapping")})
    names = [stage_term.name for stage_term in by_default.stage(0).plan.terms]
    assert "soft_label" in names and term not in names


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"kind": "classification", "label_column": "y"}, "label_column applies only to rows with labels"),
        ({"kind": "classification", "class_weights": "balanced"}, "class_weights applies only to rows with labels"),
        ({"kind": "ranking"}, "'labelled' does not apply to ranking"),
        ({"kind": "classification", "name": "rte"}, "the rows of the task 'rte' have labels"),
    ],
)
def test_keys_of_labels_are_refused_beside_rows_without(task, message):
    from limbeck.corpus.settings import TaskSpec

    with pytest.raises(ValueError, match=message):
        TaskSpec(**task, labelled=False)


def test_a_labelled_corpus_without_its_labels_names_the_way_out(tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text('{"text": "it is", "label": null}\n')
    teacher = make_teacher(tmp_path, head="classification", num_labels=3)
    with pytest.raises(CorpusError, match="set corpus.task.labelled to false to learn from the teacher alone"):
        limbeck.plan(
            {
                "teacher": teacher,
                "student": 2,
                "corpus": {"sources": source, "task": {"kind": "classification"}},
                "stages": [{"method": "mlkd_bert", "training": {"max_steps": 1}}],
                "output": tmp_path / "x",
            }
        )


def test_a_method_on_plain_text_takes_the_task_of_its_teacher(tmp_path):
    teacher = make_teacher(tmp_path, head="classification", num_labels=3)
    result = limbeck.distill(
        teacher=teacher,
        student=2,
        corpus=TEXTS,
        method="distilbert",
        steps=1,
        evaluation={"enabled": False},
        output=tmp_path / "x",
    )
    task = result.record["recipe"]["corpus"]["task"]
    assert (task["kind"], task["labelled"]) == ("classification", False)
