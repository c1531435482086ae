"""The shipped plan is valid at its published sizes, and is what the comparative study's tables 2 and 3 compare."""

import re
from collections import Counter

import yaml

from limbeck.comparison.cells import steps_of_stages
from limbeck.comparison.checks import check_plan
from limbeck.comparison.load import load_plan
from limbeck.comparison.student_evaluation import check_tasks
from limbeck.evaluation.protocols.protocol import PROTOCOLS
from limbeck.evaluation.tasks.registry import parse_tasks
from tests.support.paper_recipes import ROOT, write_configuration

PATH = ROOT / "compare-methods.yaml"


def test_the_shipped_plan_compares_what_the_study_compares(tmp_path):
    teacher = write_configuration(tmp_path, "bert", 12, 768, 12, "masked_lm")
    checked = check_plan(load_plan(PATH, [f"teacher.model={teacher}"]))
    assert not checked.impossible
    rows = Counter(combination.variant.method for combination in checked.combinations)
    assert rows == {"hidden_states": 20, "output_distribution": 20, "minilmv2": 12, "direct_minilm": 12}
    assert check_tasks(checked.plan.evaluation, read=False) == []
    assert len(parse_tasks(",".join(checked.plan.evaluation.tasks))) == len(PROTOCOLS["comparative_study"].average) == 8
    shapes = {(run.student.layers, run.student.hidden, run.student.heads, run.student.ffn) for _, run in checked.runs}
    assert shapes == {(6, 768, 12, 3072), (6, 384, 12, 1536), (4, 576, 12, 768), (3, 384, 12, 1024)}
    layers = {
        key.layer
        for combination, run in checked.runs if combination.variant.method == "minilmv2"
        for term in run.stages[0].terms for key in term.teacher
    }  # fmt: skip
    assert layers == {10, 11, 12}


def test_its_stages_share_the_budget(tmp_path):
    plan = load_plan(PATH)
    [entry] = [entry for entry in plan.methods if entry.shown == "output_distribution"]
    variant = entry.variants()[0]
    rates = [stage["training"].get("learning_rate", plan.training["learning_rate"]) for stage in variant.stages]
    assert rates == [5e-4, 3e-4]
    trainings = [{**plan.training, **stage["training"]} for stage in variant.stages]
    first, second = steps_of_stages(plan.budget.tokens, variant.shares, trainings, 250.0)
    assert abs(first / (first + second) - 0.7) < 1e-3


def test_the_example_of_the_documentation_is_a_plan():
    page = (ROOT.parent / "docs" / "comparison.md").read_text(encoding="utf-8")
    example = re.split(r"```yaml[^\n]*\n", page)[1].split("```")[0]
    plan = load_plan(yaml.safe_load(example))
    assert sum(len(entry.variants()) for entry in plan.methods) * len(plan.students) * len(plan.seeds) == 12
