"""What candidates are scored by: held-out text as a naive reference has it, tasks as `limbeck evaluate` has them."""

import copy
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from scipy.stats import spearmanr

import limbeck
from limbeck.core.studies import Evaluation
from limbeck.errors import CorpusError, TrainingError
from limbeck.models.loading import load_model, load_tokenizer
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.search import scores as proxy_scores
from limbeck.search.mapping import task_measures
from limbeck.search.scores import HeldOutScores, TaskScores, describe_tasks, held_out_pairs, mean_score
from limbeck.training.run import build_corpora
from limbeck.training.students import dropouts, make_student, save_student
from tests.support import mapping_search
from tests.support.corpora import write_text
from tests.support.task_files import write_tasks

SETTINGS = ("length=32", "epochs=1", "batch_size=8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scored")


@pytest.fixture(scope="module")
def plan(folder):
    teacher = mapping_search.write_teacher(folder, layers=3, hidden=32, heads=4, ffn=32)
    shape = {"shape": {"layers": 2, "hidden": 16, "heads": 4, "ffn": 16}}
    recipe = mapping_search.recipe_data(teacher, write_text(folder / "text"), student=shape)
    return plan_run(load_recipe(recipe))


@pytest.fixture(scope="module")
def teacher(plan):
    return load_model(plan.recipe.teacher.model)


@pytest.fixture(scope="module")
def tokenizer(plan):
    return load_tokenizer(plan.recipe.teacher.model)


@pytest.fixture(scope="module")
def corpus(plan, tokenizer):
    return build_corpora(plan, tokenizer, Console(quiet=True))[0]


@pytest.fixture(scope="module")
def scores(teacher, tokenizer, corpus, plan):
    return HeldOutScores(teacher, tokenizer, corpus, plan)


def student_of(plan, teacher, seed=0):
    student, _ = make_student(plan.student_choice, None, None, lambda **options: teacher, seed)
    return student.eval()


@torch.no_grad()
def naive_relations(student, teacher, corpus, heads):
    """1 - d(student) / d(uniform) in percent, block by block, head by head, from the models' own projections."""

    def last_projections(model, ids):
        found = {}
        attention = model.encoder.layer[-1].attention.self
        handles = [
            getattr(attention, part).register_forward_hook(lambda m, i, out, part=part: found.__setitem__(part, out))
            for part in ("query", "key", "value")
        ]
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
        for handle in handles:
            handle.remove()
        return found

    def relations(vectors):
        split = vectors[0].double().reshape(vectors.shape[1], heads, -1).transpose(0, 1)
        return torch.softmax(split @ split.transpose(1, 2) / split.shape[-1] ** 0.5, dim=-1)

    of_student = of_uniform = 0.0
    for row in corpus.held_out:
        ids = torch.tensor([row["input_ids"]])
        ours, theirs = last_projections(student, ids), last_projections(teacher, ids)
        for part in ("query", "key", "value"):
            target = relations(theirs[part])
            of_student += float((target * (target / relations(ours[part])).log()).sum())
            of_uniform += float((target * (target * target.shape[-1]).log()).sum())
    return 100 * (1 - of_student / of_uniform)


@torch.no_grad()
def naive_agreement(student, teacher, tokenizer, corpus):
    pairs = held_out_pairs(corpus)
    similarities = []
    for model in (student, teacher):
        vectors = {}
        for text in {text for pair in pairs for text in pair}:
            ids = torch.tensor([tokenizer(text, truncation=True, max_length=32)["input_ids"]])
            vectors[text] = model(input_ids=ids).last_hidden_state[0].mean(0)
        similarities.append([float(torch.cosine_similarity(vectors[a], vectors[b], dim=0)) for a, b in pairs])
    return 100 * spearmanr(*similarities).statistic


def test_held_out_scores_are_the_naive_ones(scores, plan, teacher, tokenizer, corpus):
    student = student_of(plan, teacher)
    found = scores.measure(student, plan, "0-3")
    assert found["relations"] == pytest.approx(naive_relations(student, teacher, corpus, heads=16), abs=0.01)
    assert found["agreement"] == pytest.approx(naive_agreement(student, teacher, tokenizer, corpus), abs=0.05)


def test_the_teacher_has_all_of_itself(scores, plan, teacher):
    found = scores.measure(copy.deepcopy(teacher), plan, "all")
    assert found["agreement"] == pytest.approx(100, abs=0.01) and found["relations"] == pytest.approx(100, abs=0.01)


def test_a_student_that_looks_at_all_alike_has_no_relation(scores, plan, teacher):
    student = student_of(plan, teacher)
    with torch.no_grad():
        for part in ("query", "key", "value"):
            projection = getattr(student.encoder.layer[-1].attention.self, part)
            projection.weight.zero_()
            projection.bias.zero_()
    assert scores.measure(student, plan, "0-3")["relations"] == pytest.approx(0, abs=1e-4)


def test_vectors_that_are_all_alike_have_no_fitness(scores, plan, teacher):
    student = student_of(plan, teacher)
    with torch.no_grad():
        student.encoder.layer[-1].output.LayerNorm.weight.zero_()
    found = scores.measure(student, plan, "0-3")
    assert math.isnan(found["agreement"]) and math.isnan(mean_score(found))


def test_a_student_is_measured_and_left_as_it_is(scores, plan, teacher):
    student = student_of(plan, teacher)
    before = copy.deepcopy(student.state_dict())
    first = scores.measure(student, plan, "0-3")
    assert scores.measure(student, plan, "0-3") == first
    assert not student.training and all(torch.equal(before[k], v) for k, v in student.state_dict().items())
    assert not any(module._forward_hooks for module in student.modules())


def test_fitness_is_the_mean_of_all_scores():
    assert mean_score({"sst2": 88.0, "mnli": 77.0, "squad": 80.0}) == pytest.approx(245 / 3)
    assert math.isnan(mean_score({"sst2": 88.0, "mnli": math.nan}))
    assert math.isnan(mean_score({"sst2": math.inf}))


@pytest.fixture(scope="module")
def data(folder):
    return write_tasks(folder / "tasks")


@pytest.fixture
def spec(data):
    return task_measures("rte,mrpc", data=str(data), preset="quick", seeds=1, settings=SETTINGS)


def test_tasks_give_what_an_evaluation_gives(spec, data, plan, teacher, tokenizer, tmp_path):
    student = student_of(plan, teacher)
    names = list(describe_tasks(spec)["tasks"])
    found = TaskScores(spec, names, tokenizer, tmp_path / "candidates").measure(student, plan, "0-3")
    assert not (tmp_path / "candidates").exists(), "students are not kept"
    save_student(tmp_path / "kept", student, tokenizer, dropouts=dropouts(plan.student_choice), sentence=None)
    result = limbeck.evaluate(
        [tmp_path / "kept"], "rte,mrpc", output=tmp_path / "evaluation", data=data, preset="quick", seeds=1,
        overrides=SETTINGS,
    )  # fmt: skip
    columns = result.summary["models"][0]["columns"]
    assert found == {"rte": columns["rte"]["mean"], "mrpc": columns["mrpc"]["metrics"]["accuracy"]["mean"]}


def summary_of(**cells):
    """A summary of tasks with a column or two each, of which only some have figures."""
    keys = {"mnli": ("mnli-m", "mnli-mm"), "squad": ("squad",)}
    columns = [{"key": key, "title": key, "task": task} for task, own in keys.items() for key in own]
    figures = {key.replace("_", "-"): {"mean": value} for key, value in cells.items()}
    models = [{"name": "student", "columns": figures}]
    return SimpleNamespace(summary=Evaluation.read({"columns": columns, "models": models, "notes": ["it diverged"]}))


def test_the_first_column_of_a_task_counts(spec, plan, teacher, tokenizer, tmp_path, monkeypatch):
    outcome = summary_of(mnli_m=70.0, mnli_mm=10.0, squad=50.0)
    monkeypatch.setattr(proxy_scores, "evaluate_students", lambda *a, **k: outcome)
    scores = TaskScores(spec, ["mnli", "squad"], tokenizer, tmp_path / "candidates")
    assert scores.measure(student_of(plan, teacher), plan, "0-3") == {"mnli": 70.0, "squad": 50.0}


def test_the_paper_has_accuracy_matched_accuracy_and_f1(data):
    """ELM section 5.2: accuracy of SST-2 and MNLI, F1 of SQuAD 1.1."""
    from limbeck.evaluation.protocols import task_columns
    from limbeck.evaluation.tasks import TASKS
    from limbeck.search.mapping import PAPER_TASKS

    main = {name: (task_columns(TASKS[name])[0].key, TASKS[name].metrics[0]) for name in PAPER_TASKS}
    assert main == {"sst2": ("sst2", "accuracy"), "mnli": ("mnli-m", "accuracy"), "squad": ("squad", "f1_answer")}


def test_a_fine_tuning_that_fails_is_said_with_its_reason(spec, plan, teacher, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(proxy_scores, "evaluate_students", lambda *a, **k: summary_of(mnli_m=70.0))
    scores = TaskScores(spec, ["mnli", "squad"], tokenizer, tmp_path / "candidates")
    with pytest.raises(TrainingError, match=r"^No score of squad: it diverged$"):
        scores.measure(student_of(plan, teacher), plan, "0-3")
    assert not (tmp_path / "candidates").exists()


def test_what_a_killed_worker_left_is_no_obstacle(spec, plan, teacher, tokenizer, tmp_path):
    left = tmp_path / "candidates" / "0-3" / "student"
    left.mkdir(parents=True)
    (left / "half.safetensors").write_bytes(b"half")
    found = TaskScores(spec, ["rte", "mrpc"], tokenizer, tmp_path / "candidates").measure(
        student_of(plan, teacher), plan, "0-3"
    )
    assert set(found) == {"rte", "mrpc"}


def test_other_rows_are_other_tasks(spec, data, tmp_path):
    known = describe_tasks(spec)
    assert known == describe_tasks(spec) and known["settings"] == {"length": 32, "epochs": 1, "batch_size": 8}
    other = write_tasks(tmp_path / "other")
    lines = (other / "RTE" / "dev.tsv").read_text().splitlines()
    (other / "RTE" / "dev.tsv").write_text("\n".join(lines[:-1]) + "\n")
    changed = describe_tasks(spec.model_copy(update={"data": str(other)}))["tasks"]
    assert changed["rte"] != known["tasks"]["rte"] and changed["mrpc"] == known["tasks"]["mrpc"]


def test_no_held_out_text_is_refused(plan, tokenizer, tmp_path):
    recipe = load_recipe(plan.recipe, ["corpus.held_out=0"])
    corpus = build_corpora(plan_run(recipe), tokenizer, Console(quiet=True))[0]
    with pytest.raises(CorpusError, match="No text is held out"):
        held_out_pairs(corpus)
