"""Stages: their curves, with every logged value."""

import json
from pathlib import Path

import yaml

from limbeck.core.records import PlannedStage, ScoredByStep, Stage
from limbeck.report.curves import loss_blocks
from limbeck.report.logs import read_stage_log
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


def test_a_log_is_read_by_terms_and_says_what_it_could_not_read(tmp_path):
    log = write_log(tmp_path, LOGS["damaged"], '[1]\n{"step": 4, "lo')
    assert log.curves["loss"].tolist() == [[1.0, 3.0], [2.0, 2.0]], "in the order of the steps"
    assert log.curves["eval_hidden_1_2"].tolist() == [[2.0, 1.5]]
    assert not {"eval_runtime", "tokens"} & set(log.curves)
    assert log.terms() == ["hidden_1_2"] and (log.not_finite, log.damaged, log.lines) == (1, 2, 4)
    assert log.reached == {"step": 3.0}, "of the last line with a loss"
    lines = " ".join(lines_of(blocks_of(log, steps=3)))
    assert "1 infinite or NaN value not drawn" in lines and "2 damaged lines of log.jsonl skipped" in lines


def test_terms_have_panels_of_their_own(tmp_path):
    terms = {f"loss_hidden_{layer}_{2 * layer}": 1.0 / layer for layer in range(1, 7)} | {"loss_pooled": 1.0}
    held_out = {name.replace("loss_", "eval_"): value for name, value in terms.items()}
    entries = [{"step": step, "loss": 1.0, **terms} for step in (1, 2)]
    entries += [{"step": step, "eval_loss": 1.0, **held_out} for step in (1, 2)]
    loss, figure = blocks_of(write_log(tmp_path, entries), steps=2)
    assert (loss.title, figure.title) == ("S: Loss", "S: Terms of the loss")
    panels = dict(figure.drawing.panels)
    assert [*panels] == [name.removeprefix("loss_") for name in terms]
    assert [series.label for series in panels["pooled"].series] == ["training", "held-out text"]


def test_scores_on_a_part_of_the_development_rows_say_so(tmp_path):
    log = write_log(tmp_path, [{"step": step, "development_accuracy": 0.1 * step} for step in (1, 2)])
    [figure] = blocks_of(log, steps=2)
    assert (figure.title, figure.caption) == ("S: Scores on development rows", "")
    rows = ScoredByStep(rows=40, all_rows=60, name="queries")
    [figure] = blocks_of(log, steps=2, scored_by_step=rows)
    assert figure.caption.startswith("Each score is on the same 40 of the 60 development queries, so it may differ")


def test_a_stage_without_a_log_says_so(tmp_path):
    for record, reason in (({}, "nothing has been logged yet"), ({"steps": 3}, "there is no log")):
        assert [block.lines for block in blocks_of(read_stage_log(tmp_path), **record)] == [(f"S: {reason}.",)]


def test_the_last_line_may_be_one_that_is_being_written(tmp_path):
    log = write_log(tmp_path, [{"step": 1, "loss": 2.0, "tokens": 8.0, "seconds": 2.0}], '{"step": 2, "lo')
    assert (log.lines, log.damaged) == (1, 0)
    assert log.reached == {"step": 1.0, "tokens": 8.0, "seconds": 2.0}


def test_an_unfinished_stage_is_shown_as_far_as_its_log_goes(tmp_path):
    entries = [{"step": 1000 * n, "loss": 1.0 / n, "tokens": 500.0 * n, "seconds": 5.0 * n} for n in (1, 2)]
    stage = StageFolder("s", Stage(), PlannedStage(), write_log(tmp_path, entries))
    assert lines_of(blocks_of(stage.log)) == ["S is not finished: its log goes up to step 2,000."]
    cells = stage_cells(stage, longest=10.0)
    assert tuple(map(str, cells[:5])) == ("–", "2,000 so far", "1,000 so far", "10 s so far", "–")


def test_a_long_curve_keeps_every_spike_and_stays_small(tmp_path):
    entries = [{"step": step, "loss": 1.0 + step % 7} for step in range(1, 20_001)]
    entries[12_345]["loss"] = 9.0
    [figure] = blocks_of(write_log(tmp_path, entries), steps=1)
    assert figure.drawing.series[0].points[:, 1].max() == 9.0 and figure.data is None
    assert "from 2 at 1 to 2 at 20,000, lowest 1 at 7" in figure.description
    assert len(svg_of(figure)) < 60_000
