"""Plans that cannot be carried out are refused in a line, before anything runs; the cases stand in `refusals.yaml`."""

from pathlib import Path

import pytest
import yaml

import limbeck
from limbeck.comparison.checks import check_plan
from limbeck.comparison.load import load_plan
from limbeck.errors import LimbeckError, RecipeError
from tests.support.comparisons import STUDENT, tiny_plan

CASES = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text(encoding="utf-8"))


def refused(case, act):
    with pytest.raises(LimbeckError) as caught:
        act(*case[1:])
    line = f"{type(caught.value).__name__}: {caught.value}"
    assert all(part in line for part in case[0].split(" … ")), line
    return line


@pytest.mark.parametrize("case", CASES["plans"], ids=str)
def test_mistakes_are_named_with_their_place(tmp_path, case):
    plan = tiny_plan(tmp_path / "teacher", tmp_path / "text")
    assert refused(case, lambda changes: load_plan(plan | changes)).startswith("RecipeError")


def test_files_that_are_no_plan(tmp_path):
    path = tmp_path / "plan.yaml"
    code = "teacher: !!python/object/apply:os.getcwd []"
    for content, message in ((None, "not exist"), ("- a", "a mapping with the keys teacher"), (code, "not valid YAML")):
        if content is not None:
            path.write_text(content)
        with pytest.raises(RecipeError, match=message):
            load_plan(path)


@pytest.fixture
def mixed(teacher, text):
    """A plan of four combinations, one of which cannot be."""
    students = [STUDENT, {"name": "few heads", "shape": {**STUDENT, "heads": 2}}]
    methods = ["tinybert", {"name": "minilmv2", "options": {"relation_heads": 16}}]
    return tiny_plan(teacher, text, students=students, methods=methods)


@pytest.mark.parametrize("case", CASES["combinations"], ids=str)
def test_combinations_that_cannot_be_are_refused_with_their_reasons(mixed, case):
    line = refused(case, lambda *overrides: check_plan(load_plan(mixed, overrides)))
    assert "stages.0" not in line


def test_they_are_left_out_where_the_plan_says_so(mixed):
    checked = check_plan(load_plan(mixed, ["skip_impossible=true"]))
    assert [(found.label, found.student) for found in checked.impossible] == [("tinybert, uniform", "few heads")]
    titles = ("tinybert, uniform on 2x32", "minilmv2, layer auto on 2x32", "minilmv2, layer auto on few heads")
    assert tuple(combination.title for combination in checked.combinations) == titles


@pytest.mark.parametrize("case", CASES["tasks"], ids=str)
def test_tasks_are_checked_before_anything_runs(plan, tasks, tmp_path, trained, case):
    plan["evaluation"] |= {"data": str(tasks), "preset": "quick"}
    refused(case, lambda *overrides: limbeck.compare(plan, overrides, output=tmp_path / "out"))
    assert not trained and not (tmp_path / "out").exists()


def test_too_small_a_budget_is_refused_before_anything_runs(plan, tmp_path, trained):
    with pytest.raises(RecipeError, match="budget.tokens 5 gives a stage 5 tokens"):
        limbeck.compare(plan, ["budget.tokens=5"], output=tmp_path / "out")
    assert not trained
