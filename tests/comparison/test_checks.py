"""Combinations that cannot be: refused with their reasons, or left out."""

import pytest

from limbeck.comparison.cells import check_plan
from limbeck.comparison.plan import load_plan
from limbeck.errors import CorpusError, LimbeckError, ModelError, RecipeError
from tests.support.comparisons import STUDENT, tiny_plan

FEW_HEADS = {"name": "few heads", "shape": {**STUDENT, "heads": 2}}
MIXED = ["tinybert", {"name": "minilmv2", "options": {"relation_heads": 16}}]


@pytest.fixture
def plan(teacher, text):
    return tiny_plan(teacher, text, students=[STUDENT, FEW_HEADS], methods=MIXED)


def test_each_combination_that_cannot_be_is_refused_with_its_reason(plan):
    methods = [*MIXED, {"name": "hidden_states", "mappings": ["last", [1, 2, 3]]}]
    with pytest.raises(RecipeError) as caught:
        check_plan(load_plan(plan, [f"methods={methods}"]))
    message = str(caught.value)
    assert message.startswith("3 of 8 combinations cannot be:")
    assert "tinybert, uniform on few heads: tinybert compares attention head by head" in message
    assert "hidden_states, [1, 2, 3] on 2x32, hidden_states, [1, 2, 3] on few heads: mapping [1, 2, 3] has 3" in message
    assert "skip_impossible: true" in message
    assert "stages.0" not in message


def test_they_are_left_out_where_the_plan_says_so(plan):
    checked = check_plan(load_plan(plan, ["skip_impossible=true"]))
    assert [(found.label, found.student) for found in checked.impossible] == [("tinybert, uniform", "few heads")]
    assert [combination.title for combination in checked.combinations] == [
        "tinybert, uniform on 2x32", "minilmv2, layer auto on 2x32", "minilmv2, layer auto on few heads"
    ]  # fmt: skip


def test_a_plan_of_nothing_possible_is_refused_all_the_same(plan):
    methods = ["tinybert", {"title": "start", "stages": []}]
    changes = {"students": [FEW_HEADS], "methods": methods, "skip_impossible": True}
    with pytest.raises(RecipeError, match="1 of 2 combinations cannot be.*Please change the plan"):
        check_plan(load_plan({**plan, **changes}))


def test_streamed_text_is_refused(plan):
    with pytest.raises(RecipeError, match="corpus.streaming: all runs of a comparison read one built corpus"):
        check_plan(load_plan(plan, ["corpus.streaming=true"]))


def test_relation_heads_have_to_divide(plan):
    methods = [{"name": "minilmv2", "options": {"relation_heads": 48}}]
    with pytest.raises(RecipeError, match="2 of 2 combinations .* relation_heads 48 does not divide the width 32"):
        check_plan(load_plan({**plan, "methods": methods}))


@pytest.mark.parametrize(
    ("override", "error", "part"),
    [
        ("teacher.model=./gone", ModelError, "There is no model folder"),
        ("students.1.shape.heads=3", ModelError, "students.1: 3 heads do not divide"),
        ("corpus.sources=[./gone]", CorpusError, "does not exist"),
        ("training.learning_rat=1", RecipeError, "Did you mean 'learning_rate'"),
        ("methods.1.training={lr: 1}", RecipeError, "methods.1.training"),
        ("evaluation.speed.device=tpu", RecipeError, "no device 'tpu'"),
        ("evaluation.speed={enabled: true, lengths: [4096]}", RecipeError, "128 positions"),
    ],
)
def test_what_no_combination_can_have_is_no_impossible_combination(plan, override, error, part):
    with pytest.raises(LimbeckError) as caught:
        check_plan(load_plan(plan, ["skip_impossible=true", override]))
    assert isinstance(caught.value, error)
    assert part in str(caught.value)


def test_two_names_for_one_run_are_refused(plan):
    methods = ["minilmv2", {"name": "minilmv2", "title": "again"}]
    with pytest.raises(
        RecipeError, match="'minilmv2, layer auto on 2x32' and 'again, layer auto on 2x32' are the same"
    ):
        check_plan(load_plan({**plan, "methods": methods}))
