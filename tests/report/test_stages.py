"""Stages: their curves, with every logged value however many there were."""

import json
import math
from pathlib import Path
from random import Random

import pytest
import yaml

from limbeck.core.records import PlannedStage, Stage
from limbeck.report.curves import loss_blocks
from limbeck.report.logs import MOST_POINTS, RATE, Curve, read_stage_log, thin
from limbeck.report.pictures import svg_of
from limbeck.report.run import stage_cells
from limbeck.report.subjects import StageFolder

LOGS = yaml.safe_load(Path(__file__).with_name("logs.yaml").read_text(encoding="utf-8"))


def write_log(folder, entries, more=""):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries) + more)
    return read_stage_log(folder)


def blocks_of(log, **record):
    """The blocks of a stage with this log; one without a record is not finished."""
    return list(loss_blocks(StageFolder("s", Stage(**record), PlannedStage(), log), "S"))


def lines_of(blocks):
    return [line for block in blocks for line in getattr(block, "lines", ())]


def test_few_points_stay_as_they_are():
    points = [(float(step), 1 / step) for step in range(1, MOST_POINTS + 1)]
    assert thin(points) == Curve(tuple(points), (), MOST_POINTS)


def test_many_points_become_means_with_their_extremes():
    random = Random(0)
    points = [(float(step), random.random()) for step in range(1, 400_001)]
    points[123_456] = (123_457.0, 99.0)
    points[300_000] = (300_001.0, -99.0)
    curve = thin(points)
    assert len(curve.points) == len(curve.ranges) == MOST_POINTS // 2 and curve.logged == 400_000
    assert max(high for _, high in curve.ranges) == 99.0 and min(low for low, _ in curve.ranges) == -99.0
    total = math.fsum(value for _, value in points) / len(points)
    assert math.isclose(math.fsum(mean for _, mean in curve.points) / len(curve.points), total)
    assert [step for step, _ in curve.points] == sorted(step for step, _ in curve.points)
    assert all(low <= mean <= high for (_, mean), (low, high) in zip(curve.points, curve.ranges, strict=True))


def test_an_odd_number_of_points_loses_none():
    curve = thin([(float(step), 1.0) for step in range(1003)], groups=7)
    assert len(curve.points) == 7 and math.isclose(sum(y for _, y in curve.points), 7)
    assert curve.points[0][0] < 1003 / 7 and curve.points[-1][0] > 1003 * 6 / 7


def test_a_log_is_read_by_terms_and_says_what_it_could_not_read(tmp_path):
    log = write_log(tmp_path, LOGS["damaged"], '[1]\n{"step": 4, "lo')
    assert log.curves["loss"].points == ((1.0, 3.0), (2.0, 2.0)), "in the order of the steps"
    assert log.curves["eval_hidden_1_2"].points == ((2.0, 1.5),)
    assert not {"eval_runtime", "tokens"} & set(log.curves)
    assert log.terms() == ["hidden_1_2"] and (log.not_finite, log.damaged, log.lines) == (2, 2, 4)
    assert log.reached == {"step": 3.0}, "of the last line with a loss"
    lines = " ".join(lines_of(blocks_of(log, steps=3)))
    assert "2 infinite or NaN values not drawn" in lines and "2 damaged lines of log.jsonl skipped" in lines


def test_terms_of_one_kind_share_figures_that_can_be_read(tmp_path):
    terms = {f"loss_hidden_{layer}_{2 * layer}": 1.0 / layer for layer in range(1, 7)} | {"loss_pooled": 1.0}
    held_out = {name.replace("loss_", "eval_"): value for name, value in terms.items()}
    entries = [{"step": step, "loss": 1.0, **terms} for step in (1, 2)]
    entries += [{"step": step, "eval_loss": 1.0, **held_out} for step in (1, 2)]
    titles = [block.title for block in blocks_of(write_log(tmp_path, entries), steps=2)]
    assert titles == [
        "S: Loss", "S: Term hidden (1 of 2)", "S: Term hidden (1 of 2), held-out text", "S: Term hidden (2 of 2)",
        "S: Term hidden (2 of 2), held-out text", "S: Term pooled",
    ]  # fmt: skip


def test_a_stage_without_a_log_says_so(tmp_path):
    for record, said in (({}, "nothing has been logged yet"), ({"steps": 3}, "there is no log")):
        assert [block.lines for block in blocks_of(read_stage_log(tmp_path), **record)] == [(f"S: {said}.",)]


@pytest.mark.parametrize(("finished", "damaged"), [(False, 0), (True, 1)])
def test_the_last_line_of_an_unfinished_log_is_one_that_is_being_written(tmp_path, finished, damaged):
    if finished:
        (tmp_path / "stage.json").write_text("{}")
    log = write_log(tmp_path, [{"step": 1, "loss": 2.0, "tokens": 8.0, "seconds": 2.0}], '{"step": 2, "lo')
    assert (log.lines, log.damaged, log.source) == (1, damaged, "log.jsonl")
    assert log.reached == {"step": 1.0, "tokens": 8.0, "seconds": 2.0}


def test_an_unfinished_stage_is_shown_as_far_as_its_log_goes(tmp_path):
    entries = [{"step": 1000 * n, "loss": 1.0 / n, "tokens": 500.0 * n, "seconds": 5.0 * n} for n in (1, 2)]
    (tmp_path / "checkpoint-1000").mkdir()
    history = {"log_history": [{"step": 1000, "loss": 9.0}]}
    (tmp_path / "checkpoint-1000" / "trainer_state.json").write_text(json.dumps(history))
    found = StageFolder("s", Stage(), PlannedStage(), write_log(tmp_path, entries))
    said = lines_of(blocks_of(found.log))
    assert said == ["S is not finished: its curves are from log.jsonl, up to step 2,000."]
    assert tuple(map(str, stage_cells(found)[:5])) == ("–", "2,000 so far", "1,000 so far", "10 s so far", "–")
    (tmp_path / "log.jsonl").write_text("")
    assert read_stage_log(tmp_path).source == "checkpoint-1000/trainer_state.json"


def test_tokens_a_second_are_those_between_two_lines_without_evaluation(tmp_path):
    log = write_log(tmp_path, LOGS["with-times"])
    assert log.curves[RATE].points == ((1.0, 50.0), (2.0, 200.0), (6.0, 50.0))
    figure = next(block for block in blocks_of(log, steps=6) if getattr(block, "title", "") == "S: Tokens/s")
    assert [row[1] for row in figure.data.rows] == ["50", "200", "50"]


def test_logs_without_times_have_no_rate(tmp_path):
    log = write_log(tmp_path, [{"step": step, "loss": 1.0, "tokens": 100.0 * step} for step in (1, 2, 3)])
    assert RATE not in log.curves
    assert [block.title for block in blocks_of(log, steps=3)] == ["S: Loss"]


def test_a_thinned_curve_says_so_and_stays_small(tmp_path):
    entries = [{"step": step, "loss": 1.0 + step % 7, "loss_a": 1.0, "loss_b": 2.0} for step in range(1, 20_001)]
    loss = blocks_of(write_log(tmp_path, entries), steps=1)[0]
    assert loss.caption.startswith("Thinned from 20,000 points")
    assert len(loss.data.rows) <= 201 and len(svg_of(loss)) < 60_000
