"""What candidates are scored by: held-out text as a naive reference has it, tasks as `limbeck evaluate` has them."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

import limbeck
from limbeck.comparison.last_layers import LastLayers
from limbeck.comparison.pair_agreement import PairAgreement
from limbeck.core.studies import Evaluation
from limbeck.errors import CorpusError, TrainingError
from limbeck.evaluation.plan.columns import task_columns
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.models.taps import StreamTap
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.search import task_scores
from limbeck.search.held_out_scores import (
    LAYER_SCORES,
    HeldOutScores,
    held_out_pairs,
    loss_batches,
    plain_copy,
)
from limbeck.search.requests import PAPER_TASKS, task_measures
from limbeck.search.scores import mean_score
from limbeck.search.task_scores import TaskScores, describe_tasks
from limbeck.search.taught_streams import loss_name
from limbeck.training.proxy import Proxy
from limbeck.training.student_folder import save_student
from limbeck.training.student_maker import make_student
from tests.support import mapping_search
from tests.support.corpora import write_text
from tests.support.models import tiny_tokenizer
from tests.support.task_files import write_tasks

SETTINGS = ("length=32", "epochs=1", "batch_size=8")


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scored")
    teacher = mapping_search.write_teacher(folder, layers=3, hidden=32, heads=4, ffn=32)
    shape = {"shape": {"layers": 2, "hidden": 16, "heads": 4, "ffn": 16}}
    recipe = mapping_search.recipe_data(teacher, write_text(folder / "text", 60), student=shape)
    return Proxy(plan_run(load_recipe(recipe)), console=Console(quiet=True))


@pytest.fixture(scope="module")
def teacher(proxy):
    return proxy.load_teacher()


@pytest.fixture(scope="module")
def measure(proxy):
    """Scores of a student: those of mappings and those of layers."""
    both = [HeldOutScores(proxy), HeldOutScores(proxy, LAYER_SCORES)]
    return lambda student: [scores.measure(student, proxy.plan, "0-3") for scores in both]


@pytest.fixture
def student(proxy, teacher):
    return make_student(proxy.plan.student_plan, lambda **options: teacher, seed=0)[0].eval()


def test_held_out_scores_are_those_of_the_outputs(measure, student, proxy, teacher):
    before = copy.deepcopy(student.state_dict())
    of_mapping, of_layer = measure(student)
    assert measure(student) == [of_mapping, of_layer], "a student is left as it is"
    assert not student.training and all(torch.equal(before[k], v) for k, v in student.state_dict().items())
    assert not any(module._forward_hooks for module in student.modules())
    assert of_mapping["agreement"] == of_layer["agreement"]
    relations, explained = LastLayers(teacher, loss_batches(proxy), [proxy.plan.student]).compare(student)
    assert of_layer["explained"] == pytest.approx(100 * explained)
    assert 0 < of_mapping["relations"] < 100 and relations > 0
    agreement = PairAgreement(teacher, proxy.tokenizer, proxy.corpora[0], held_out_pairs(proxy), "mean")
    assert of_mapping["agreement"] == pytest.approx(100 * agreement.of_student(student))


def test_the_teacher_has_all_of_itself(measure, teacher):
    of_mapping, of_layer = measure(copy.deepcopy(teacher))
    assert of_mapping == pytest.approx({"agreement": 100, "relations": 100}, abs=0.01)
    assert of_layer == pytest.approx({"agreement": 100, "explained": 100}, abs=0.5)


def test_a_student_that_knows_nothing_has_nothing(measure, student):
    layer = student.encoder.layer[-1]
    with torch.no_grad():
        for part in ("query", "key", "value"):
            getattr(layer.attention.self, part).weight.zero_()
            getattr(layer.attention.self, part).bias.zero_()
    assert measure(student)[0]["relations"] == pytest.approx(0, abs=1e-4)
    with torch.no_grad():
        layer.output.LayerNorm.weight.zero_()
    of_mapping, of_layer = measure(student)
    assert math.isnan(of_mapping["agreement"]) and math.isnan(mean_score(of_mapping))
    assert of_layer["explained"] == pytest.approx(0, abs=5)


def test_fitness_is_the_mean_of_all_scores():
    assert mean_score({"sst2": 88.0, "mnli": 77.0, "squad": 80.0}) == pytest.approx(245 / 3)
    assert math.isnan(mean_score({"sst2": 88.0, "mnli": math.nan}))
    assert math.isnan(mean_score({"sst2": math.inf}))


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("{name: hidden_states, mapping: last}", "hidden"),
        ("{name: hidden_states, mapping: [1, 0]}", "relations"),
        ("{name: minilmv2, relation_heads: 4}", "relations"),
        ("{name: tinybert, mapping: uniform}", "hidden"),
        ("sentence_embedding", "hidden"),
    ],
)
def test_the_loss_of_shapes_fits_the_method(proxy, method, kind):
    assert loss_name(plan_run(load_recipe(proxy.plan.recipe, [f"stages.0.method={method}"]))) == kind


def test_held_out_blocks_come_in_three_batches_or_more():
    def sizes(count):
        corpus = SimpleNamespace(held_out=[{"input_ids": [5 + number % 9] * 6} for number in range(count)])
        proxy = SimpleNamespace(corpora=[corpus], tokenizer=tiny_tokenizer("bert"))
        return [len(batch["input_ids"]) for batch in loss_batches(proxy)]

    assert (sizes(200), sizes(10)) == ([32, 32, 32], [3, 3, 3, 1])
    with pytest.raises(CorpusError, match="2 blocks held out"):
        sizes(2)


def test_a_plain_copy_is_the_student_without_its_taps(proxy, student):
    inputs = {"input_ids": torch.arange(5, 17).reshape(2, 6), "attention_mask": torch.ones(2, 6, dtype=torch.long)}
    with torch.no_grad():
        expected = student(**inputs).last_hidden_state
        with StreamTap(student, [key for term in proxy.plan.stages[0].terms for key in term.student]) as tap:
            before = tap(**inputs)
            result = plain_copy(student, proxy.plan)
            assert torch.equal(result(**inputs).last_hidden_state, expected) and not result.training
            after = tap(**inputs)
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("tasks"))


@pytest.fixture
def spec(data):
    return task_measures("rte,mrpc", data=str(data), preset="quick", seeds=1, settings=SETTINGS)


def test_tasks_give_what_an_evaluation_gives(spec, data, proxy, student, tmp_path):
    left, plan = tmp_path / "candidates" / "0-3" / "student", proxy.plan
    left.mkdir(parents=True)
    (left / "half.safetensors").write_bytes(b"left by a killed worker")
    names = list(describe_tasks(spec)["tasks"])
    found = TaskScores(proxy, spec, names, tmp_path / "candidates").measure(student, plan, "0-3")
    assert not (tmp_path / "candidates").exists(), "students are not kept"
    save_student(tmp_path / "kept", student, proxy.tokenizer, plan.student_plan, sentence=None)
    result = limbeck.evaluate(
        [tmp_path / "kept"], "rte,mrpc", output=tmp_path / "evaluation", data=data, preset="quick", seeds=1,
        overrides=SETTINGS,
    )  # fmt: skip
    columns = result.summary["models"][0]["columns"]
    assert found == {"rte": columns["rte"]["mean"], "mrpc": columns["mrpc"]["metrics"]["accuracy"]["mean"]}


def test_the_first_column_of_a_task_counts(spec, proxy, student, tmp_path, monkeypatch):
    scores = TaskScores(proxy, spec, ["mnli", "squad"], tmp_path / "candidates")
    columns = [{"key": key, "title": key, "task": key.split("-")[0]} for key in ("mnli-m", "mnli-mm", "squad")]
    figures = {"mnli-m": {"mean": 70.0}, "mnli-mm": {"mean": 10.0}, "squad": {"mean": 50.0}}
    values = {"columns": columns, "models": [{"name": "student", "columns": figures}], "notes": ["it diverged"]}
    outcome = SimpleNamespace(summary=Evaluation.read(values))
    monkeypatch.setattr(task_scores, "evaluate_students", lambda *a, **k: outcome)
    assert scores.measure(student, proxy.plan, "0-3") == {"mnli": 70.0, "squad": 50.0}
    del outcome.summary.models[0].columns["squad"]
    with pytest.raises(TrainingError, match=r"^No score of squad: it diverged$"):
        scores.measure(student, proxy.plan, "0-3")


def test_the_paper_has_accuracy_matched_accuracy_and_f1():
    """ELM section 5.2: accuracy of SST-2 and MNLI, F1 of SQuAD 1.1."""
    main = {name: (task_columns(TASKS[name])[0].key, TASKS[name].metrics[0]) for name in PAPER_TASKS}
    assert main == {"sst2": ("sst2", "accuracy"), "mnli": ("mnli-m", "accuracy"), "squad": ("squad", "f1_answer")}


def test_other_rows_are_other_tasks(spec, data, tmp_path):
    known = describe_tasks(spec)
    assert known == describe_tasks(spec) and known["settings"] == {"length": 32, "epochs": 1, "batch_size": 8}
    other = write_tasks(tmp_path / "other")
    lines = (other / "RTE" / "dev.tsv").read_text().splitlines()
    (other / "RTE" / "dev.tsv").write_text("\n".join(lines[:-1]) + "\n")
    changed = describe_tasks(spec.model_copy(update={"data": str(other)}))["tasks"]
    assert changed["rte"] != known["tasks"]["rte"] and changed["mrpc"] == known["tasks"]["mrpc"]
