"""Models scored by their heads as they are: the figures of `transformers.Trainer.evaluate` and of SQuAD's script; label
maps are checked; cells go on where they stopped."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from scipy.stats import pearsonr, spearmanr
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

from limbeck.errors import ModelError, OutputError, RecipeError
from limbeck.evaluation.evaluators import head_outputs
from limbeck.evaluation.evaluators.head_match import match_head
from limbeck.evaluation.plan.identity import identity
from limbeck.evaluation.plan.planned_model import plan_models
from limbeck.evaluation.plan.planner import Planner
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.run.evaluation import run_evaluation
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.models.quiet import quiet
from tests.evaluation.metrics import naive
from tests.support.models import make_teacher
from tests.support.task_files import squad, write_table, write_tasks
from tests.support.tasks import make_rows, make_task

MRPC = TASKS["mrpc"].labels
QUESTIONS = make_rows("question_answering", 13, 3)
VALUES = make_rows("regression", 15, 4)
SETTINGS = ("length=32", "squad.length=40", "squad.stride=8")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """MRPC, RTE, STS-B and SQuAD 1.1 without rows to train on, but for those of MRPC and RTE."""
    folder = write_tasks(tmp_path_factory.mktemp("data"))
    rows = [(row.text, row.pair, row.label) for row in VALUES]
    write_table(folder / "STS-B/dev.tsv", ("sentence1", "sentence2", "score"), rows)
    (folder / "dev-v1.1.json").write_text(squad(QUESTIONS))
    return folder


@pytest.fixture(scope="module")
def model_of(tmp_path_factory):
    """Make a model of 2 layers with a head."""

    def make(head, seed=0, **changes):
        sizes = {"layers": 2, "hidden": 32, "heads": 4, "ffn": 64, "seed": seed}
        return str(make_teacher(tmp_path_factory.mktemp("model"), head=head, **sizes | changes))

    return make


@pytest.fixture(scope="module")
def classifier(model_of):
    return model_of("classification", seed=3, id2label=dict(enumerate(MRPC)), label2id={})


@pytest.fixture
def evaluate(data, tmp_path):
    def run(*models, tasks, folder="out", settings=SETTINGS, **more):
        settings = tuple(text for text in settings if text.partition(".")[0] in (*tasks.split(","), text))
        request = EvaluationRequest(models, tasks, tmp_path / folder, data=data, preset="mlkd_bert",
                                    overrides=settings, as_is=True, **more)  # fmt: skip
        outcome = run_evaluation(request)
        lines = (tmp_path / folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
        return outcome, [json.loads(line) for line in lines]

    return run


def trainer_of(model, tmp_path, **more):
    arguments = TrainingArguments(str(tmp_path / "trainer"), per_device_eval_batch_size=64, report_to="none",
                                  disable_tqdm=True, use_cpu=not torch.accelerator.is_available())  # fmt: skip
    return Trainer(model=model, args=arguments, **more)


def count_figures(given):
    """Accuracy and the F1 of the second class, by counting."""
    pairs = list(zip(given.predictions.argmax(-1).tolist(), given.label_ids.tolist(), strict=True))
    hits, ours, theirs = (sum(map(test, pairs)) for test in ((1, 1).__eq__, lambda p: p[0], lambda p: p[1]))
    return {"accuracy": sum(ours == gold for ours, gold in pairs) / len(pairs), "f1": 2 * hits / (ours + theirs)}


def correlations(given):
    # Its labels are rounded to float32 on their way.
    ours, theirs = given.predictions[:, 0].astype(np.float64), [row.label for row in VALUES]
    return {"pearson": pearsonr(ours, theirs).statistic, "spearman": spearmanr(ours, theirs).statistic}


@pytest.mark.parametrize("task", ["mrpc", "stsb"])
def test_the_metrics_are_those_of_trainer_evaluate(task, evaluate, data, classifier, model_of, tmp_path):
    folder = classifier if task == "mrpc" else model_of("regression", num_labels=1)
    outcome, (row,) = evaluate(folder, tasks=task)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = make_rows("classification", 12, 1) if task == "mrpc" else VALUES
    encoded = tokenizer([r.text for r in rows], [r.pair for r in rows], truncation=True, max_length=32)
    dataset = Dataset.from_dict({**encoded, "labels": [r.label for r in rows]})
    with quiet():
        plain = AutoModelForSequenceClassification.from_pretrained(folder)
        figures = count_figures if task == "mrpc" else correlations
        trainer = trainer_of(plain, tmp_path, data_collator=DataCollatorWithPadding(tokenizer), compute_metrics=figures)
        wanted = trainer.evaluate(dataset)
    assert row["scores"] == {"validation": {name: wanted[f"eval_{name}"] for name in TASKS[task].metrics}}
    assert row["rows"] == {"validation": len(rows)} and row["training_seconds"] == 0 == row["seed"]
    assert "learning_rate" not in row["settings"]
    (column,) = (outcome.summary.models[0].columns[key] for key in (task,))
    assert column.mean == 100 * wanted["eval_f1" if task == "mrpc" else "eval_spearman"], "the paper's metric"
    assert 0 < abs(column.mean) < 100


def test_a_tokenizer_that_pads_on_the_left_changes_no_score(evaluate, model_of):
    folder = model_of("regression", num_labels=1)
    _, (right,) = evaluate(folder, tasks="stsb", folder="right")
    config = Path(folder) / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"padding_side": "left"}))
    _, (left,) = evaluate(folder, tasks="stsb", folder="left")
    assert left["scores"] == right["scores"]


def test_a_task_without_rows_to_train_on_is_for_models_as_they_are(classifier, tmp_path):
    task = {"name": "pairs", "type": "pair", "columns": {"text": "a", "pair": "b"}, "labels": list(MRPC)}
    (tmp_path / "pairs.yaml").write_text(json.dumps({**task, "files": {"validation": "rows.jsonl"}}))
    rows = [{"a": "the model", "b": f"text {number}", "label": number % 2} for number in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    request = EvaluationRequest((classifier,), str(tmp_path / "pairs.yaml"), tmp_path / "out", as_is=True)
    assert run_evaluation(request).summary.models[0].columns["pairs"].mean is not None
    with pytest.raises(RecipeError, match=r"pairs has no split to train on: .* \(--as-is\)"):
        run_evaluation(replace(request, output=tmp_path / "trained", as_is=False))


def test_answers_are_scored_as_by_squads_script(evaluate, model_of, tmp_path):
    folder = model_of("question_answering", seed=3)
    _, (row,) = evaluate(folder, tasks="squad")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts, cut = ([row.pair for row in QUESTIONS], [row.text for row in QUESTIONS]), {"max_length": 40, "stride": 8}
    windows = tokenizer(*texts, truncation="only_second", return_overflowing_tokens=True, return_offsets_mapping=True,
                        **cut)  # fmt: skip
    with quiet():
        trainer = trainer_of(AutoModelForQuestionAnswering.from_pretrained(folder), tmp_path,
                             data_collator=DataCollatorWithPadding(tokenizer))  # fmt: skip
        inputs = {name: windows[name] for name in tokenizer.model_input_names}
        starts, ends = trainer.predict(Dataset.from_dict(inputs)).predictions
    best = {}
    for number, question in enumerate(windows["overflow_to_sample_mapping"]):
        context = [place for place, part in enumerate(windows.sequence_ids(number)) if part == 1]
        first, last = (sorted(context, key=lambda p, s=s: -s[number][p])[:20] for s in (starts, ends))
        for start, end in itertools.product(first, last):
            score = float(starts[number][start]) + float(ends[number][end])
            if start <= end < start + 30 and score > best.get(question, (-np.inf,))[0]:
                places = windows["offset_mapping"][number]
                best[question] = score, QUESTIONS[question].text[places[start][0] : places[end][1]]
    assert len(windows["input_ids"]) > len(QUESTIONS) == len(best)
    answers = [(best[number][1], question.answers) for number, question in enumerate(QUESTIONS)]
    exact = np.mean([naive.exact(ours, golds, naive.squad_tokens) for ours, golds in answers])
    f1 = np.mean([naive.f1(ours, golds, naive.squad_tokens) for ours, golds in answers])
    assert row["scores"]["validation"] == pytest.approx({"f1_answer": f1, "exact_match": exact}, abs=1e-12)
    assert 0 < f1 < 1


def config_of(*labels, architecture="BertForSequenceClassification", **more):
    return BertConfig(num_labels=len(labels), id2label=dict(enumerate(labels)), architectures=[architecture], **more)


@pytest.mark.parametrize(
    ("labels", "renamed", "classes", "note"),
    [
        (("no", "yes"), {}, (0, 1), None),
        (("YES ", "No"), {}, (1, 0), "'m' has its classes in another order (YES , No), which is turned into"),
        (("LABEL_0", "LABEL_1"), {}, (0, 1), "have no names (LABEL_0, LABEL_1); taken in the task's order: no, yes"),
        (("0", "1"), {}, (0, 1), "have no names (0, 1)"),
        (("LABEL_0", "LABEL_1"), {"LABEL_0": "yes", "LABEL_1": "no"}, (1, 0), "another order"),
        (("good", "bad"), {"good": "yes", "bad": "no"}, (1, 0), "another order"),
    ],
)  # fmt: skip
def test_classes_are_matched_by_their_names(labels, renamed, classes, note):
    found = match_head("m", config_of(*labels), make_task("classification"), renamed)
    assert found.classes == classes and len(found.notes) == (note is not None)
    assert note is None or note in found.notes[0]


@pytest.mark.parametrize(
    ("config", "kind", "renamed", "message"),
    [
        (config_of("good", "bad"), "classification", {},
         "'m' has the classes good, bad, but Classification has no, yes; name them with --classes good=no"),
        (config_of("LABEL_1", "LABEL_0"), "classification", {}, "name them with --classes LABEL_1=no"),
        (config_of("LABEL_0", "LABEL_1"), "classification", {"LABEL_0": "yes"}, "name them with --classes LABEL_0=no"),
        (config_of("good", "bad"), "classification", {"good": "yes", "bad": "yes"},
         r"has the classes good \(named yes\), bad \(named yes\), but"),
        (config_of("a", "b", "c"), "classification", {},
         r"'m' has 3 outputs \(a, b, c\), but Classification has 2 classes \(no, yes\); give a model that was"),
        (config_of("a"), "classification", {}, r"'m' has 1 output \(a\), but Classification has 2 classes"),
        (config_of("no", "yes"), "regression", {}, r"has 2 outputs \(no, yes\), but Regression needs one value"),
        (config_of("no", "yes", problem_type="multi_label_classification"), "classification", {},
         "'m' was fine-tuned for multi label classification"),
        (config_of("no", "yes", architecture="BertForMaskedLM"), "classification", {},
         r"'m' has no classification head \(it is a BertForMaskedLM\); fine-tune it on the task first"),
        (config_of("no", "yes", architecture="BertModel"), "question_answering", {}, "no question answering head"),
    ],
)  # fmt: skip
def test_heads_that_do_not_fit_are_refused(config, kind, renamed, message):
    with pytest.raises(ModelError, match=message):
        match_head("m", config, make_task(kind), renamed)


def test_cells_as_they_are_in_the_same_tables(evaluate, data, classifier, model_of, monkeypatch, tmp_path):
    """The classes are turned, the teacher is the reference, nothing runs twice, and the folder belongs to it."""
    turned = model_of("classification", seed=24, id2label=dict(enumerate(reversed(MRPC))), label2id={})
    outcome, rows = evaluate(turned, teacher=classifier, tasks="mrpc")
    assert [row["settings"]["classes"] for row in rows] == [[0, 1], [1, 0]]
    teacher, student = outcome.summary.models
    kept = 100 * student.columns["mrpc"].mean / teacher.columns["mrpc"].mean
    assert student.retention["mrpc"] == pytest.approx(kept) and outcome.summary.as_is
    assert sum("another order" in note for note in outcome.summary.notes) == 1
    (plain,) = evaluate(turned, tasks="mrpc", folder="renamed", classes=dict(zip(MRPC, reversed(MRPC), strict=True)))[1]
    assert plain["settings"]["classes"] == [0, 1]
    accuracy = rows[1]["scores"]["validation"]["accuracy"]
    assert plain["scores"]["validation"]["accuracy"] == pytest.approx(1 - accuracy) != accuracy
    monkeypatch.setattr("limbeck.evaluation.evaluators.fine_tuned.train_once", None)
    again, same = evaluate(turned, teacher=classifier, tasks="mrpc")
    assert same == rows and again.summary == outcome.summary
    request = EvaluationRequest((turned,), "mrpc", tmp_path / "out", data=data, preset="mlkd_bert",
                                overrides=("length=32",))  # fmt: skip
    with pytest.raises(
        OutputError, match="was begun with --as-is, so it cannot go on without; give --as-is again, or another --output"
    ):
        run_evaluation(request)


def test_unlabelled_rows_are_predicted_where_that_is_asked_for(evaluate, data, classifier):
    """With `predict`, or where nothing else is there: so many rows take longer than those that are scored."""
    write_table(data / "MRPC/test.tsv", ("index", "#1 ID", "#2 ID", "#1 String", "#2 String"),
                [(number, 1, 2, f"a{number}", "b") for number in range(5)])  # fmt: skip
    plain, (row,) = evaluate(classifier, tasks="mrpc")
    assert not plain.submissions and row["predictions"] is None and "predict" not in row["settings"]
    asked, rows = evaluate(classifier, tasks="mrpc", settings=(*SETTINGS[:1], "predict=true"), folder="asked")
    assert [path.name for path in asked.submissions] == ["MRPC.tsv"] and rows[0]["id"] != row["id"]
    assert rows[0]["scores"] == row["scores"]
    (data / "MRPC/dev.tsv").rename(data / "MRPC/aside")
    try:
        alone, _ = evaluate(classifier, tasks="mrpc", folder="alone")
    finally:
        (data / "MRPC/aside").rename(data / "MRPC/dev.tsv")
        (data / "MRPC/test.tsv").unlink()
    assert [path.name for path in alone.submissions] == ["MRPC.tsv"]


def test_progress_goes_on_within_a_cell(data, classifier, monkeypatch, tmp_path):
    monkeypatch.setattr(head_outputs, "EVALUATION_BATCH", 4)
    request, told = EvaluationRequest((classifier,), "mrpc", tmp_path, data=data, preset="quick", as_is=True), []
    run_evaluation(request, lambda share, what, count=None: told.append((share, what)))
    shares = [share for share, what in told if what.startswith("mrpc")]
    assert shares == sorted(shares) and len(set(shares)) == 4 and shares[-1] == 1, "12 rows in three batches"


def test_refusals_come_before_anything_is_scored(evaluate, classifier, model_of, tmp_path):
    headless = model_of(None)
    refused = [
        ({"models": (classifier, headless), "tasks": "mrpc"}, ModelError, "has no classification head"),
        ({"models": (classifier,), "tasks": "mrpc,stsb"}, ModelError, "STS-B needs one value"),
        ({"models": (classifier,), "tasks": "rte"}, ModelError, "RTE has entailment, not_entailment; name them with"),
        ({"models": (classifier,), "tasks": "mrpc", "seeds": 2}, RecipeError, "--seeds counts training runs"),
        ({"models": (classifier,), "tasks": "mrpc", "settings": ("epochs=1",)}, RecipeError,
         "'epochs=1' is a training setting, but --as-is trains nothing; its settings are length, stride"),
        ({"models": (classifier,), "tasks": "mrpc", "classes": {"LABEL_0": "equivalent"}}, RecipeError,
         "--classes names 'LABEL_0', which is not a class of any of the models"),
    ]  # fmt: skip
    for given, kind, message in refused:
        with pytest.raises(kind, match=message):
            evaluate(*given.pop("models"), **given)
    assert not (tmp_path / "out").exists()


def test_published_rows_beside_models_as_they_are(evaluate, model_of):
    shape = {"layers": 4, "hidden": 312, "heads": 12, "ffn": 16}
    folder = model_of("classification", id2label=dict(enumerate(MRPC)), label2id={}, **shape)
    summary = evaluate(folder, tasks="mrpc")[0].summary
    assert "MLKD-BERT" in {row.model for row in summary.published if row.distilled == "task"}
    assert not any("left out" in note for note in summary.notes)


@pytest.mark.parametrize(("kind", "task"), [("regression", "stsb"), ("classification", "mrpc")])
def test_scores_of_rows_that_were_padded_on_the_left_are_not_used_again(data, model_of, tmp_path, kind, task):
    shape = {"id2label": dict(enumerate(MRPC)), "label2id": {}} if kind == "classification" else {"num_labels": 1}
    folder = Path(model_of(kind, **shape))
    request = EvaluationRequest((str(folder),), task, tmp_path / "out", data=data, as_is=True)

    def is_known_from_before():
        (model,) = plan_models([str(folder)], as_is=True)
        planned = Planner(request).plan(task, [model])
        (cell,) = planned.cells
        return cell.id == identity(cell.cell, model=model.fingerprint, data=planned.data)

    assert is_known_from_before()
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"padding_side": "left"}))
    assert not is_known_from_before()
