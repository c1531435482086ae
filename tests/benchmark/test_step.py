"""`benchmark step`: its parts make the trainer's own step, and its figures fit together."""

from dataclasses import asdict

import pytest
import torch
import yaml

from limbeck.benchmark import step_rows
from limbeck.benchmark.step import PARTS, Step
from limbeck.benchmark.step_batch import make_batch
from limbeck.benchmark.step_rows import WHOLE, measure_peak, measure_step
from limbeck.benchmark.step_setup import StepRequest, set_up_step
from limbeck.errors import LimbeckError, ModelError, RecipeError
from limbeck.methods import METHODS

TINY = StepRequest(teacher="4x48", student="2x24", batch=3, length=8, ragged=True, dtype="float32", device="cpu")


def request(**changes):
    return StepRequest(**{**asdict(TINY), **changes})


@pytest.mark.parametrize(
    ("method", "changes"),
    [("minilmv2", {"dtype": "bfloat16"}), ("tinybert", {}), ("distilbert", {}), ("sentence_embedding", {})],
)
def test_the_parts_make_the_whole_step(method, changes):
    student = "2x48" if method == "distilbert" else "2x24"
    setup = set_up_step(request(method=method, student=student, **changes))
    whole, parts = Step(setup), Step(setup)
    parts.module.load_state_dict(whole.module.state_dict())
    for taken in (lambda: whole.run(), lambda: parts.run_parts()):
        torch.manual_seed(3)  # for dropout
        taken()
        taken()
    before = Step(setup).module.student.state_dict()
    moved = 0
    for (name, item), other in zip(whole.module.state_dict().items(), parts.module.state_dict().values(), strict=True):
        torch.testing.assert_close(item, other, rtol=1e-4, atol=1e-6)
        stripped = name.removeprefix("student.")
        moved += stripped in before and not torch.equal(item, before[stripped])
    assert moved > 5


def test_micro_batches_make_one_step(tiny_recipe, tmp_path):
    tiny_recipe["stages"][0]["training"]["gradient_accumulation_steps"] = 2
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe))
    setup = set_up_step(StepRequest(recipe=str(path), batch=2, length=8, device="cpu"))
    assert (setup.batch, setup.micro_batches, setup.length, setup.method) == (2, 2, 8, "minilmv2")
    assert setup.teacher_dtype == torch.float32  # the recipe trains in it
    whole, parts = Step(setup), Step(setup)
    assert whole.tokens == 2 * 2 * 8
    torch.manual_seed(0)
    whole.run()
    torch.manual_seed(0)
    assert set(parts.run_parts()) == set(PARTS)
    torch.testing.assert_close(whole.module.state_dict(), parts.module.state_dict(), rtol=1e-4, atol=1e-6)


def test_rows_fit_together():
    heard = []
    rows = measure_step(
        TINY, seconds=0.1, memory=False, ceiling_size=32, report=lambda share, what, count=None: heard.append(share)
    )
    assert [row["part"] for row in rows] == [WHOLE, *PARTS]
    whole, parts = rows[0], rows[1:]
    assert sum(row["share"] for row in parts) == pytest.approx(1, abs=1e-4)
    assert whole["gflop"] == pytest.approx(sum(row["gflop"] for row in parts), rel=1e-4)
    assert whole["floor_ms"] == pytest.approx(sum(row["floor_ms"] or 0 for row in parts), rel=1e-4)
    valid = int(make_batch(set_up_step(TINY))["attention_mask"].sum())
    assert whole["tokens"] == valid < 3 * 8
    assert whole["tokens_per_second"] == pytest.approx(valid / whole["median_ms"] * 1000, rel=1e-4)
    for row in parts[:-1]:
        rate = row["gflop"] / row["floor_ms"] * 1000
        assert rate == pytest.approx(row["ceiling_gflops"], rel=1e-3)
        assert row["floor_percent"] == pytest.approx(row["floor_ms"] / row["median_ms"] * 100, rel=1e-3)
    assert parts[-1]["floor_ms"] == pytest.approx(parts[-1]["gbyte"] / parts[-1]["ceiling_gbytes"] * 1000, rel=1e-3)
    backward = {row["part"]: row["gflop"] for row in parts}
    assert backward["student backward"] == pytest.approx(2 * backward["student forward"], rel=1e-4)
    assert heard == sorted(heard)


def test_the_peak_is_that_of_the_request(monkeypatch):
    peak = measure_peak(TINY)
    assert peak.total_mb > peak.extra_mb >= 0
    asked = []
    monkeypatch.setattr(step_rows.peak_memory, "peak_of", lambda measure, device: asked.append(measure.args) or peak)
    rows = measure_step(TINY, seconds=0.01, ceiling_size=16)
    assert asked == [(TINY,)]
    assert [row["peak_mb"] is None for row in rows] == [False] + [True] * len(PARTS)


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_can_be_measured(method):
    stages = range(1, 1 + max(1, len(METHODS[method].stages)))
    student = "2x48" if method in ("distilbert", "bert_pkd") else "2x24"
    for stage in stages:
        setup = set_up_step(request(method=method, student=student, stage=stage))
        taken = Step(setup)
        taken.run_parts()
        counted = taken.operations()
        assert list(counted) == list(PARTS)
        assert counted["student forward"].count > 0


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"stage": 2}, RecipeError, "has 1 stage,"),
        ({"dtype": "float64"}, RecipeError, "float32 or bfloat16"),
        ({"student": "2by24"}, ModelError, "2by24"),
        ({"device": "cuda:77"}, RecipeError, "no device"),
    ],
)
def test_mistakes_are_refused(changes, error, words):
    with pytest.raises(error, match=words):
        set_up_step(request(**changes))


def test_a_saved_model_says_how_long_its_texts_may_be(bert_folder):
    with pytest.raises(LimbeckError, match="--length 500 is longer"):
        set_up_step(request(teacher=str(bert_folder), length=500))
    assert set_up_step(request(length=900)).student_shape.positions == 900  # a named shape grows
