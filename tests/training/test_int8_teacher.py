"""Runs that are taught in int8: other numbers, as repeatable, and said in the record, the card and the report."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

import limbeck
from limbeck.benchmark.step import StepRequest, set_up_step
from limbeck.corpus.documents import Step
from limbeck.errors import LimbeckError, OutputError, RecipeError
from limbeck.models import quantising
from limbeck.recipe import plan as planning
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.proxy import Proxy
from tests.support.int8 import HAS_VNNI, on_vnni
from tests.support.training import elsewhere, kill_at, record_of, student_of
from tests.training.conftest import make_recipe, refused

IN_INT8 = "teacher.precision=int8"


@pytest.fixture(scope="module")
def in_int8(bert_folder, text_folder, tmp_path_factory):
    """The recipe of a finished run."""
    if not HAS_VNNI:
        pytest.skip("this CPU has no AVX512-VNNI")
    recipe = make_recipe(bert_folder, text_folder, tmp_path_factory.mktemp("int8") / "run")
    recipe["teacher"]["precision"] = "int8"
    limbeck.distill(recipe)
    return recipe


def test_a_run_in_int8_resumes_to_the_same_bits(in_int8, whole, tmp_path):
    stopped = elsewhere(in_int8, tmp_path / "stopped")
    kill_at(stopped, 5)
    limbeck.distill(stopped, resume=True)
    ours, theirs, plain = map(student_of, (stopped, in_int8, whole))
    assert all(ours[name].equal(theirs[name]) for name in theirs)
    assert any(not plain[name].equal(theirs[name]) for name in theirs)


def test_the_record_the_card_and_the_report_say_so(in_int8, whole):
    (stage,) = record_of(in_int8)["stages"]
    assert stage["teacher_precision"] == "int8" and stage["precision"] == "float32"
    assert "teacher_precision" not in record_of(whole)["stages"][0]
    folder = Path(in_int8["output"])
    assert "the linear maps of the teacher's layers were computed in int8" in (folder / "student/README.md").read_text()
    page = limbeck.report([folder], folder.parent / "page.html", markdown=True)
    assert "float32, teacher int8" in page.html.read_text(encoding="utf-8")
    assert "precision: int8" in (folder / "recipe.yaml").read_text()


def test_a_run_is_not_resumed_in_another_precision(in_int8):
    with refused("precision", OutputError):
        limbeck.distill(in_int8 | {"teacher": {"model": in_int8["teacher"]["model"]}}, resume=True)


@on_vnni
def test_a_plan_says_so(recipe):
    plan = plan_run(load_recipe(recipe, [IN_INT8]))
    assert ", in int8)" in repr(plan).splitlines()[0]
    assert "int8" not in repr(plan_run(load_recipe(recipe)))
    own = [f"stages.0.teacher={json.dumps({'model': recipe['teacher']['model'], 'precision': 'int8'})}"]
    assert " in int8: " in repr(plan_run(load_recipe(recipe, own)))


@on_vnni
def test_candidates_of_a_search_and_a_measured_step_are_taught_so(recipe, tmp_path, monkeypatch):
    quantise, found = quantising.quantise_linear_maps, []

    def count(parts):
        found.append(quantise(parts))

    monkeypatch.setattr(quantising, "quantise_linear_maps", count)
    recipe["stages"][0]["training"]["max_steps"] = 1
    plan = plan_run(load_recipe(recipe, [IN_INT8]))
    Proxy(plan, console=Console(file=io.StringIO())).train([plan, plan])
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(recipe))
    Step(set_up_step(StepRequest(recipe=str(path), overrides=[IN_INT8], batch=2, length=8, device="cpu"))).run()
    Step(set_up_step(StepRequest(recipe=str(path), batch=2, length=8, device="cpu"))).run()
    assert len(found) == 2 and all(found)


@pytest.mark.parametrize(("line", "overrides"), [
    ("precision int8 is for CPUs, where nothing is sharded", ["teacher.sharded=true"]),
    ("in int8 under torch_compile", ["stages.0.training.torch_compile=true"]),
])  # fmt: skip
def test_settings_that_exclude_it(recipe, line, overrides):
    with refused(line, LimbeckError):
        plan_run(load_recipe(recipe, [IN_INT8, *overrides]))


def test_a_gpu_is_refused_unless_the_stage_trains_on_the_cpu(recipe, monkeypatch):
    monkeypatch.setattr(planning, "has_accelerator", lambda: True)
    with refused("cannot run in int8 on a GPU; leave out teacher.precision, or train with device cpu", RecipeError):
        plan_run(load_recipe(recipe, [IN_INT8]))
    monkeypatch.setattr(planning, "check_quantisable", lambda *_: None)
    assert plan_run(load_recipe(recipe, [IN_INT8, "stages.0.training.use_cpu=true"]))
    assert plan_run(load_recipe(recipe))
