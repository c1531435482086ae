"""Every registered method trains, leaves a student, goes on where it stopped, and may be accumulated."""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import SequentialSampler
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    pipeline,
)

import limbeck
from limbeck.errors import Interrupted, LimbeckError
from limbeck.methods import METHODS
from limbeck.training.loader import Loader
from tests.support.methods import run_card, tiny_run, write_rows
from tests.support.models import make_teacher, save_folder, tiny_model
from tests.support.training import assert_equal, at_step, interrupt

FAMILIES = ("bert", "roberta", "modernbert")
LABELLED = {
    "classification": 3,
    "multi_label": 3,
    "regression": 1,
    "question_answering": 2,
    "token_classification": 3,
    "ranking": 1,
}
CLASSES = {
    None: AutoModel,
    "text": AutoModelForMaskedLM,
    "classification": AutoModelForSequenceClassification,
    "multi_label": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "question_answering": AutoModelForQuestionAnswering,
    "ranking": AutoModelForSequenceClassification,
    "token_classification": AutoModelForTokenClassification,
}
on_text = [name for name, method in METHODS.items() if "text" in method.tasks]


def each(names, others):
    """Every name with every other, of which all but one, the next for each name, are slow."""
    return [
        pytest.param(name, other, marks=() if (number - turn) % len(others) == 0 else pytest.mark.slow)
        for number, name in enumerate(names)
        for turn, other in enumerate(others)
    ]


def some(names, quick):
    """Every name, of which all but those of `quick` are slow."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    """Tiny teachers with a masked language model head, and one with each head of a task."""
    folder = tmp_path_factory.mktemp("teachers")
    found = {family: make_teacher(folder, family, head="masked_lm") for family in FAMILIES}
    for task, outputs in LABELLED.items():
        model = tiny_model("bert", head=task, **{} if task == "question_answering" else {"num_labels": outputs})
        if outputs == 1:
            model.classifier.weight.data *= 8  # Values that a student does not start from.
        found[task] = save_folder(model, folder / task, "bert")
    return found


@pytest.fixture(scope="module")
def text(text_folder):
    return {"sources": [str(text_folder)], "length": 24, "held_out": 0.1}


def weights_of(result):
    return load_file(result.student / "model.safetensors")


def trained(recipe, steps, head):
    """Train, see that every stage learned, and load the student as its task's class, or as a model without a head."""
    result = limbeck.distill(recipe)
    for stage, folder in zip(result.record["stages"], sorted(result.student.parent.glob("stages/*")), strict=True):
        entries = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
        found = [entry["loss"] for entry in entries if "loss" in entry]
        assert stage["steps"] == steps
        assert sum(found[-4:]) < sum(found[:4]), stage["name"]
    head = head if result.record["student"]["head"] else None
    student, info = CLASSES[head].from_pretrained(result.student, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert len(run_card(result.student)) == 1 or not head
    assert not [key for key in weights_of(result) if "teacher" in key or "maps" in key]
    return student.config, head


@pytest.mark.parametrize(("name", "family"), each(on_text, FAMILIES))
def test_a_method_trains_and_leaves_a_student(name, family, teachers, text, tmp_path):
    recipe = tiny_run(name, teachers[family], text, tmp_path / "run", max_steps=16)
    config, _ = trained(recipe, 16, "text")
    assert (config.num_hidden_layers, config.model_type) == (2, family)


# Methods with terms on labels or on the scores of a task; the others learn of rows what they learn of text.
ON_LABELS = ("bert_pkd", "mlkd_bert", "output_distribution", "distilbert", "bert_emd")
ON_ROWS = [(name, task) for name, method in METHODS.items() for task in LABELLED if task in method.tasks]


@pytest.mark.parametrize(
    ("name", "task"),
    each(ON_LABELS, [task for task in LABELLED if task != "ranking"])
    + [pytest.param("reranker", "ranking")]
    + [pytest.param(*pair, marks=pytest.mark.slow) for pair in ON_ROWS if pair[0] not in (*ON_LABELS, "reranker")],
)
def test_a_method_trains_on_labelled_rows(name, task, teachers, tmp_path):
    options = {"max_steps": 8, "per_device_train_batch_size": 64}  # Every step sees all rows.
    recipe = tiny_run(name, teachers[task], write_rows(tmp_path / "rows", task), tmp_path / "run", **options)
    config, head = trained(recipe, 8, task)
    assert not head or config.num_labels == LABELLED[task]
    if head == "token_classification":
        found = pipeline(task.replace("_", "-"), str(tmp_path / "run" / "student"))("the teacher of 3")
        assert {tag["entity"] for tag in found} <= set(config.label2id)


# Of each kind of state one: none, maps of heads, masks, two stages, weights of layers beside maps.
@pytest.mark.parametrize("name", some(on_text, ("minilmv2", "direct_minilm", "mlm", "output_distribution", "bert_emd")))
def test_a_method_goes_on_where_it_stopped(name, teachers, text, tmp_path):
    """Bit for bit, learned maps and layer weights included; in the second epoch, with new masks."""
    options = {"max_steps": 5, "save_strategy": "steps", "save_steps": 1, "per_device_train_batch_size": 64}
    whole = limbeck.distill(tiny_run(name, teachers["bert"], text, tmp_path / "whole", **options))
    recipe = tiny_run(name, teachers["bert"], text, tmp_path / "stopped", **options)
    with at_step(3, interrupt), pytest.raises(Interrupted):
        limbeck.distill(recipe)
    assert_equal(weights_of(limbeck.distill(recipe, resume=True)), weights_of(whole))


COUPLED = ("bert_emd",)
"""Methods whose terms on text relate the samples of a batch."""


def test_accumulation_is_refused_where_samples_are_related(teachers, text, tmp_path):
    for name in on_text:
        stages = limbeck.validate(tiny_run(name, teachers["bert"], text, tmp_path)).stages
        assert any(term.batch_coupled for stage in stages for term in stage.terms) == (name in COUPLED), name
    for name in COUPLED:
        with pytest.raises(LimbeckError, match="relates the samples of a batch"):
            limbeck.validate(tiny_run(name, teachers["bert"], text, tmp_path, gradient_accumulation_steps=2))


# Of each kind of count one: tokens, pairs of tokens, labelled rows, samples.
@pytest.mark.parametrize(
    "name",
    some([n for n in on_text if n not in COUPLED], ("minilmv2", "tinybert", "distilbert", "sentence_embedding")),
)
def test_accumulation_gives_the_same_trajectory(name, teachers, text, tmp_path, monkeypatch):
    # The same rows in the same order, whatever the batch size.
    monkeypatch.setattr(Loader, "sample", lambda self, rows: SequentialSampler(rows))
    runs = []
    for batch, accumulation in ((8, 1), (4, 2)):
        options = {"max_steps": 2, "optim": "sgd", "learning_rate": 1e-3, "per_device_train_batch_size": batch}
        options["gradient_accumulation_steps"] = accumulation
        recipe = tiny_run(name, teachers["bert"], {**text, "length": 16}, tmp_path / str(batch), **options)
        runs.append(weights_of(limbeck.distill(recipe)))
    torch.testing.assert_close(*runs, rtol=2e-5, atol=2e-6)
