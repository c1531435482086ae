"""Plans: what may be written, what is refused and how, and the variants that they come to."""

from pathlib import Path

import pytest
import yaml

from limbeck.comparison.cells import Cell, rows_per_step, steps_of_stages
from limbeck.comparison.load import load_plan
from limbeck.errors import RecipeError
from tests.support.comparisons import tiny_plan

VARIANTS = yaml.safe_load((Path(__file__).parent / "variants.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def plan(tmp_path):
    return tiny_plan(tmp_path / "teacher", tmp_path / "text")


def test_a_file_with_overrides(plan, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(plan))
    loaded = load_plan(path, ["budget.tokens=2e6", "methods.0.mappings=[single, [0, 2]]", "seeds=[3, 4]"], data="tasks")
    assert loaded.budget.tokens == 2_000_000
    assert loaded.methods[0].mappings == ["single", [0, 2]]
    assert loaded.seeds == [3, 4]
    assert loaded.evaluation.data == "tasks"
    assert load_plan(loaded, ["seeds=[5]"]).seeds == [5]


def test_a_folder_of_data_does_not_hide_a_wrong_evaluation(plan):
    assert load_plan(plan | {"evaluation": None}, data="tasks").evaluation.data == "tasks"
    with pytest.raises(RecipeError, match="plan: evaluation is 'cola'; give a mapping"):
        load_plan(plan | {"evaluation": "cola"}, data="tasks")


def test_students_are_shapes_or_specs(plan):
    copy = {"name": "copy", "shape": "2x24", "initialise": {"layers": "last"}}
    shapes = ["2x24", {"layers": 2, "hidden": 32, "ffn": 64}, copy]
    students = load_plan({**plan, "students": shapes}).students
    assert [student.title for student in students] == ["2x24", "2x32", "copy"]
    assert students[2].in_recipe()["initialise"]["layers"] == "last"
    assert "name" not in students[2].in_recipe()


@pytest.mark.parametrize("case", VARIANTS)
def test_variants_of_methods(plan, case):
    expected = VARIANTS[case]
    # A method that trains stands beside it, since a plan has to have one.
    entry, _ = load_plan(plan | {"methods": [expected["method"], {"name": "mlm", "title": "other"}]}).methods
    *_, last = found = entry.variants()
    assert [variant.mapping for variant in found] == expected["mappings"]
    assert ([list(variant.stages) for variant in found], list(last.shares)) == (expected["stages"], expected["shares"])
    assert last.title == ", ".join(filter(None, (entry.shown, last.mapping)))


def test_settings_of_the_evaluation_are_those_of_the_command(plan):
    settings = {"epochs": [1, 3], "cola": {"epochs": 6, "learning_rates": 1e-5}, "rte.metric": None}
    spec = load_plan(plan | {"evaluation": {"tasks": "cola, rte", "settings": settings}}).evaluation
    assert spec.tasks == ["cola", "rte"]
    assert spec.overrides == ("epochs=[1, 3]", "cola.epochs=6", "cola.learning_rates=1e-05", "rte.metric=null")


BATCH = {"per_device_train_batch_size": 8, "bf16": False}


def test_a_step_reads_all_accumulated_batches_and_a_stage_the_budget():
    assert (rows_per_step(BATCH), rows_per_step({**BATCH, "gradient_accumulation_steps": 4})) == (8, 32)
    assert all(steps_of_stages(tokens, [1.0], [BATCH], 12.5) == (100,) for tokens in (10_000, 10_049))


def test_stages_share_the_budget_to_the_step():
    for tokens in range(1000, 3000, 37):
        steps = steps_of_stages(tokens, [0.7, 0.3], [BATCH, BATCH], 12.5)
        assert sum(steps) == round(tokens / 100) and abs(steps[0] - 0.7 * tokens / 100) <= 0.5
    other = {**BATCH, "gradient_accumulation_steps": 2}
    assert steps_of_stages(6400, [0.5, 0.5], [BATCH, other], 10.0) == (40, 20), "the same tokens"


def test_too_small_a_budget_is_refused():
    with pytest.raises(
        RecipeError, match="budget.tokens 100 gives a stage 50 tokens, fewer than one step reads .about 80.; raise"
    ):
        steps_of_stages(100, [0.5, 0.5], [BATCH, BATCH], 10.0)


@pytest.mark.parametrize(
    ("shape", "size"), [(3, "3"), ("all", "all"), ("3x384", "3x384"), ({"layers": 2, "hidden": 32, "heads": 4}, "2x32")]
)
def test_the_folder_of_a_run_begins_with_the_shape_of_its_student(shape, size):
    cell = Cell(None, None, seed=1, steps=(), recipe={"student": {"shape": shape}, "stages": []})
    assert cell.folder(Path("compared")).name.startswith(f"{size}-start-seed1-")
