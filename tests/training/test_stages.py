"""Stages with teachers, students and corpora of their own, heads, and mappings that are measured."""

import json

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

import limbeck
from limbeck.corpus import CorpusSettings, PadCollator, build_corpus
from limbeck.errors import LimbeckError
from limbeck.models.loading import load_model, load_tokenizer
from limbeck.training import run as run_module
from limbeck.training.teacher import measure_layer_cosines
from tests.support.methods import TRAINING, run_card, write_rows
from tests.support.models import make_teacher
from tests.support.training import assert_equal, elsewhere, student_of


@pytest.fixture(scope="module")
def lm_teacher(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("lm"), "bert", head="masked_lm")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("classifier"), "bert", head="classification", num_labels=3)


@pytest.fixture
def recipe(tiny_recipe):
    """One stage of a few steps; tests add to it."""
    tiny_recipe["stages"][0]["training"] = {**TRAINING, "max_steps": 3}
    return tiny_recipe


def stage(name, method, steps=3, **more):
    return {"name": name, "method": method, "training": {**TRAINING, "max_steps": steps}, **more}


SMALL = {"layers": 2, "hidden": 24, "heads": 4, "ffn": 48}


def test_a_teacher_assistant_teaches_the_student_and_is_kept_when_the_run_is_resumed(recipe, monkeypatch):
    recipe["student"] = {"shape": SMALL}
    recipe["stages"] = [
        stage("assistant", "minilm", student={"shape": {**SMALL, "layers": 4}}),
        stage("student", "minilm", teacher={"stage": "assistant"}),
    ]
    whole = elsewhere(recipe, recipe["output"] + "-whole")
    result = limbeck.distill(whole)
    assistant = AutoModel.from_pretrained(result.student.parent / "stages" / "1-assistant" / "student")
    student = AutoModel.from_pretrained(result.student)
    for model, layers in ((assistant, 4), (student, 2)):
        assert (model.config.num_hidden_layers, model.config.hidden_size) == (layers, 24)
    first, second = result.record["stages"]
    assert first["student"]["shape"].startswith("bert 4x24")
    assert second["teacher"] == "the student of stage 'assistant'"
    original = run_module.run_stage

    def stop_at_the_second(choice, *arguments, **options):
        if choice.spec.title == "student":
            raise KeyboardInterrupt
        return original(choice, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "run_stage", stop_at_the_second)
        with pytest.raises(LimbeckError):
            limbeck.distill(recipe)
    limbeck.distill(recipe, resume=True)
    assert_equal(student_of(recipe), student_of(whole))


def test_hidden_states_then_output_distribution_on_one_student(recipe, lm_teacher):
    recipe["teacher"]["model"] = str(lm_teacher)
    recipe["student"] = {"shape": SMALL}
    recipe["stages"] = [stage("layers", "hidden_states"), stage("scores", "output_distribution")]
    result = limbeck.distill(recipe)
    student = AutoModelForMaskedLM.from_pretrained(result.student)
    assert student.config.hidden_size == 24
    first, second = result.record["stages"]
    assert any(name.startswith("cls.") for name in first["untrained"])
    assert not second["untrained"]
    assert result.record["untrained"]["names"] == []


def test_a_head_of_equal_width_starts_from_the_teachers(recipe, lm_teacher):
    recipe["teacher"]["model"] = str(lm_teacher)
    recipe["student"] = {"shape": {**SMALL, "hidden": 48}, "initialise": {"layers": "uniform"}}
    recipe["stages"] = [
        stage("scores", "output_distribution", training={**TRAINING, "max_steps": 1, "learning_rate": 1e-9})
    ]
    result = limbeck.distill(recipe)
    student, teacher = (load_model(str(f), head="masked_lm") for f in (result.student, lm_teacher))
    own, theirs = dict(student.named_parameters()), dict(teacher.named_parameters())
    name = "cls.predictions.transform.dense.weight"
    torch.testing.assert_close(own[name], theirs[name], atol=1e-6, rtol=0)
    assert name in result.record["student"]["initialisation"]["head"]["copied"]


def test_contribution_is_measured_and_kept(recipe):
    recipe["stages"] = [stage("layers", {"name": "hidden_states", "mapping": "contribution"})]
    result = limbeck.distill(recipe)
    cosines = json.loads((result.student.parent / "stages" / "1-layers" / "layer_cosines.json").read_text())
    assert len(cosines) == 4
    lowest = sorted(sorted(range(4), key=lambda i: cosines[i])[:2])
    assert sorted(result.record["stages"][0]["final_terms"]) == [
        f"hidden_{i}_{layer + 1}" for i, layer in enumerate(lowest, start=1)
    ]


def test_layer_cosines_are_those_of_the_hidden_states(bert_folder, text_folder):
    tokenizer = load_tokenizer(str(bert_folder))
    corpus = build_corpus(CorpusSettings(sources=(str(text_folder),), length=32), tokenizer)
    teacher = load_model(str(bert_folder))
    found = measure_layer_cosines(teacher, corpus, tokenizer)
    batch = PadCollator(tokenizer.pad_token_id)([corpus.train[i] for i in range(len(corpus.train))])
    with torch.no_grad():
        states = teacher(**batch, output_hidden_states=True).hidden_states
    valid = batch["attention_mask"].bool()
    for layer, cosine in enumerate(found):
        pair = states[layer][valid], states[layer + 1][valid]
        assert cosine == pytest.approx(float(torch.cosine_similarity(*pair, dim=-1).mean()), abs=1e-5)


def test_a_truncated_teacher_needs_no_stage(recipe):
    recipe |= {
        "stages": [],
        "student": {"shape": {**SMALL, "hidden": 48, "ffn": 96}, "initialise": {"layers": "first"}},
    }
    result = limbeck.distill(recipe)
    student, teacher = load_model(str(result.student)), load_model(recipe["teacher"]["model"])
    theirs = dict(teacher.named_parameters())
    for name, parameter in student.named_parameters():
        if "pooler" not in name:
            assert torch.equal(parameter, theirs[name]), name


def test_text_first_and_a_task_second(recipe, classifier, tmp_path):
    """General distillation, then task-specific, each on its corpus with its teacher; the card's code runs."""
    rows = write_rows(tmp_path / "rows", "classification")
    recipe["student"] = {"shape": SMALL}
    recipe["stages"] = [
        stage("general", "minilm"),
        stage("task", "output_distribution", corpus=rows, teacher={"model": str(classifier)}),
    ]
    recipe["evaluation"] = {"enabled": True, "quality": False, "speed": False}
    result = limbeck.distill(recipe)
    student = AutoModelForSequenceClassification.from_pretrained(result.student)
    assert student.config.num_labels == 3
    task = result.metrics["task"]
    assert task["metric"] == "accuracy"
    assert 0 <= task["agreement"] <= 1
    assert "Accuracy (held out)" in (result.student.parent / "evaluation.md").read_text()
    card = (result.student / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card
    assert "A text classifier (bert 2x24" in card
    assert run_card(result.student)[0] in student.config.id2label.values()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stages": [stage("a", "output_distribution")]}, "has no masked language model head"),
        ({"stages": [stage("a", "distilbert")]}, "48 wide"),
        ({"stages": [stage("a", "tinybert")]}, "needs the teacher's 4 heads, not 2"),
        ({"stages": [stage("a", {"name": "hidden_states", "mapping": [1, 9]})]}, "teacher layer 9"),
        ({"stages": [stage("a", "minilmv2", teacher={"stage": "b"})]}, "'b' is no earlier stage"),
        ({"stages": [stage("a", "minilmv2", teacher={})]}, "either model"),
        ({"stages": [stage("a", "minilmv2", student={"shape": SMALL})]}, "no stage trains the recipe's student"),
        ({"stages": [stage("a", "mlm", augment={"mask_tokens": 0})]}, "reads masked positions"),
        ({"stages": [stage("a", "mlm", augment={"mask_tokens": 1.5})]}, "mask_tokens"),
        ({"stages": [stage("a", {"name": "output_distribution", "temperature": 0})]}, "temperature"),
        ({"stages": [stage("a", {"name": "tinybert", "hidden_weight": -1})]}, "hidden_weight: Input should be"),
        ({"stages": [stage("a", {"name": "tinybert", "hidden_weight": float("inf")})]}, "hidden_weight is inf; give a"),
        ({"stages": [stage("a", {"name": "hidden_states", "mapping": 3})]}, "'3' is no layer mapping; give a strategy"),
        ({"stages": [stage("a", {"name": "hidden_states", "mapping": [1.5, 2]})]}, "is no layer mapping"),
        ({"stages": [stage("a", {"name": "hidden_states", "mapping": [True, False]})]}, "is no layer mapping"),
        ({"stages": [stage("a", {"name": "hidden_states", "mapping": {"a": 1}})]}, "is no layer mapping"),
        ({"stages": [stage("a", {"name": "minilmv2", "teacher_layer": "top"})]}, "'top' is no layer; give a number"),
        ({"stages": [stage("a", {"name": "minilmv2", "teacher_layer": True})]}, "teacher_layer is true, which means"),
        ({"stages": [stage("a", {"name": "minilmv2", "relation_heads": 4.5})]}, "'4.5' is no number of heads"),
        ({"stages": [stage("a", {"name": "minilmv2", "relations": {"query-query": float("nan")}})]}, "finite number"),
        ({"stages": [stage("a", {"name": "elm", "mapping": "search"})]}, "Did you mean 'searched'"),
        ({"stages": [stage("a", {"name": "mlkd_bert", "sample_relation_weight": 7})]}, "belongs to stage 2"),
        ({"stages": [stage("a", {"name": "mlkd_bert", "stage": 2, "mapping": "last"})]}, "belongs to stage 1"),
        ({"stages": [stage("a", {"name": "bert_pkd", "mapping": "single"})]}, "has none; choose another mapping"),
        ({"stages": [stage("a", "mlm", augment={"mask_tokens": 1e-6})]}, "masks next to nothing"),
        ({"student": {"shape": {"layers": 2, "hidden": 0}}}, "student.shape.hidden: Input should be"),
    ],
)
def test_what_cannot_be_distilled_is_refused_before_training(recipe, change, message):
    with pytest.raises(LimbeckError) as caught:
        limbeck.validate({**recipe, **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_labels_and_heads_that_do_not_fit_are_refused(recipe, classifier, lm_teacher, tmp_path):
    recipe["student"] = {"shape": SMALL}
    rows = write_rows(tmp_path / "rows", "classification")
    recipe |= {"corpus": rows, "stages": [stage("a", "output_distribution")]}
    with pytest.raises(LimbeckError, match="fine-tune it on the task first"):
        limbeck.validate({**recipe, "teacher": {"model": str(lm_teacher)}})
    recipe["teacher"] = {"model": str(classifier)}
    limbeck.validate(recipe)
    with pytest.raises(LimbeckError, match="mlm is made for text, not for classification"):
        limbeck.validate({**recipe, "stages": [stage("a", "mlm")]})
    with pytest.raises(LimbeckError, match="unit is for text without labels"):
        limbeck.validate({**recipe, "corpus": {**rows, "unit": "sentence"}})
    with pytest.raises(LimbeckError, match="has 3 outputs, but regression needs 1"):
        limbeck.validate({**recipe, "corpus": {**rows, "task": {**rows["task"], "kind": "regression"}}})
    with pytest.raises(LimbeckError, match="gradient_accumulation_steps to 1"):
        coupled = stage("a", {"name": "mlkd_bert", "stage": 2})
        coupled["training"]["gradient_accumulation_steps"] = 2
        limbeck.validate({**recipe, "stages": [coupled]})
    for change, message in (
        ({"stride": 4}, "stride means nothing to classification"),
        ({"pair_column": "label"}, "name three"),
        ({"kind": "question_answering"}, "pair_column means nothing to question_answering"),
    ):
        with pytest.raises(LimbeckError, match=message):
            limbeck.validate({**recipe, "corpus": {**rows, "task": {**rows["task"], **change}}})
    with pytest.raises(LimbeckError, match="corpus.length 500 is longer than the teacher's 128"):
        limbeck.validate({**recipe, "corpus": {**rows, "length": 500}})
    other = make_teacher(tmp_path / "other", "roberta", head="classification", num_labels=3)
    with pytest.raises(LimbeckError, match="another vocabulary than the recipe's teacher"):
        other_stage = stage("a", "output_distribution", teacher={"model": str(other)})
        limbeck.validate({**recipe, "stages": [other_stage]})
    path = tmp_path / "wrong.tsv"
    path.write_text("sentence1\tsentence2\tlabel\nthe text\tthe model\t7\nthe\tof\t1\n", encoding="utf-8")
    with pytest.raises(LimbeckError, match="7") as caught:
        limbeck.distill({**recipe, "corpus": {**rows, "sources": [str(path)]}})
    assert "\n" not in str(caught.value)


def test_a_stage_without_scores_knows_the_classes_of_the_stage_that_teaches_them(recipe, classifier, tmp_path):
    """MLKD-BERT's first stage reads no label: its teacher may be any encoder."""
    rows = write_rows(tmp_path / "rows", "classification")
    path = tmp_path / "named.tsv"
    lines = (tmp_path / "rows" / "classification.tsv").read_text().splitlines()
    named = [line.rsplit("\t", 1)[0] + f"\tLABEL_{line[-1]}" for line in lines[1:]]
    path.write_text("\n".join([lines[0], *named]) + "\n")
    recipe |= {"student": {"shape": SMALL}, "corpus": {**rows, "sources": [str(path)]}}
    recipe["stages"] = [
        stage("layers", {"name": "mlkd_bert", "stage": 1}),
        stage("prediction", {"name": "mlkd_bert", "stage": 2}, teacher={"model": str(classifier)}),
    ]
    plan = limbeck.validate(recipe)
    assert [choice.corpus.labels for choice in plan.stages] == [("LABEL_0", "LABEL_1", "LABEL_2")] * 2
    assert limbeck.distill(recipe).record["status"] == "finished"
