"""A search of shapes that is stopped, killed, shared or made for something else."""

import io
import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest
from optuna.trial import TrialState
from rich.console import Console

from limbeck.errors import Interrupted, OutputError, TrainingError
from limbeck.search import architecture, engine
from limbeck.search.architecture import search_architecture
from limbeck.search.latency import ShapeLatency
from limbeck.search.shape_space import ShapeLimits, ShapePoint, ShapeSizes
from limbeck.search.workers import machine, worker_key
from tests.support import shape_search
from tests.support.corpora import write_text
from tests.support.shape_search import (
    EVERYTHING,
    POINTS,
    SIZES,
    STEPS,
    load_study,
    loss_of,
    make_request,
    reward_of,
    share_of,
)

files, recipe, asked = shape_search.files, shape_search.recipe, shape_search.asked


def test_an_interrupted_search_tries_the_same_shapes_again(recipe, asked, tmp_path):
    def stop(points):
        if len(asked.batches) == 1:
            interrupted.extend(points)
            raise KeyboardInterrupt

    interrupted: list[ShapePoint] = []
    asked.before = stop
    with pytest.raises(Interrupted, match="the same command goes on from there"):
        search_architecture(make_request(recipe, tmp_path / "out"))
    asked.before = None
    record = search_architecture(make_request(recipe, tmp_path / "out"))
    assert len(asked.shapes) == len(set(asked.shapes)) == 6
    assert asked.batches[1] == interrupted
    assert len(asked.measured) == 6, "latencies are kept"
    assert record["cost"]["failed"] == 2


def test_shapes_that_were_shown_are_kept_when_a_later_one_of_their_batch_fails(recipe, asked, tmp_path, monkeypatch):
    class LossThatStops(shape_search.FakeLoss):
        def __call__(self, student):
            if len(asked.batches) == 1 and student == asked.batches[0][1]:
                raise KeyboardInterrupt
            return super().__call__(student)

    console = Console(record=True, width=200, file=io.StringIO())
    with monkeypatch.context() as patch:
        patch.setattr(architecture, "LastLayerLoss", LossThatStops)
        with pytest.raises(Interrupted):
            search_architecture(make_request(recipe, tmp_path / "out"), console)
    told = [trial.user_attrs["shape"] for trial in load_study(tmp_path / "out").trials if trial.value is not None]
    first, second = asked.batches[0]
    assert told == [str(first)]
    assert str(second) not in console.export_text()
    search_architecture(make_request(recipe, tmp_path / "out"))
    assert first not in asked.batches[1] and second in asked.batches[1]


def test_the_shape_of_a_killed_worker_is_tried_again(recipe, asked, tmp_path):
    search_architecture(make_request(recipe, tmp_path / "out", trials=2))
    study = load_study(tmp_path / "out")
    killed = next(p for p in POINTS if p not in asked.shapes)
    study.enqueue_trial(killed._asdict())
    trial = study.ask()
    trial.set_user_attr("worker", "killed")
    for name, values in asdict(SIZES).items():
        trial.suggest_categorical(name, values)
    sign = {"machine": machine(), "process": psutil.Process().pid, "started": 0.0, "interval": 99.0, "beat": 0}
    study.set_user_attr(worker_key("killed"), sign | {"ended": False})
    search_architecture(make_request(recipe, tmp_path / "out", trials=4))
    assert killed in asked.batches[1] and len(asked.shapes) == 4
    assert load_study(tmp_path / "out").trials[trial.number].state == TrialState.FAIL


def test_a_shape_that_another_worker_has_is_left_to_it(recipe, asked, tmp_path):
    search_architecture(make_request(recipe, tmp_path / "out", trials=1, batch=1))
    study = load_study(tmp_path / "out")
    taken = next(p for p in POINTS if p not in asked.shapes)
    study.enqueue_trial(taken._asdict())
    trial = study.ask()
    trial.set_user_attr("worker", "alive")
    for name, values in asdict(SIZES).items():
        trial.suggest_categorical(name, values)
    this = psutil.Process()
    sign = {"machine": machine(), "process": this.pid, "started": this.create_time(), "interval": 99.0, "beat": 0}
    study.set_user_attr(worker_key("alive"), sign | {"ended": False})

    def tell(points):
        if len(asked.batches) == 3:
            trial.set_user_attr("loss", loss_of(taken))
            trial.set_user_attr("latency", asdict(ShapeLatency(share_of(taken), 1.0, 10.0, 1)))
            study.tell(trial, reward_of(taken))

    asked.before = tell
    record = search_architecture(make_request(recipe, tmp_path / "out", trials=EVERYTHING, batch=4))
    assert taken not in asked.shapes and len(asked.shapes) == EVERYTHING - 1
    assert record["cost"]["trained"] == EVERYTHING


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"seed": 4}, "seed"),
        ({"stages": [{"method": "minilmv2", "training": {"max_steps": STEPS}}]}, r"stages\.0"),
    ],
    ids=str,
)
def test_a_study_of_another_run_is_refused(recipe, asked, tmp_path, change, key):
    search_architecture(make_request(recipe, tmp_path / "out"))
    other = recipe | {
        name: recipe[name] | value if isinstance(value, dict) else value for name, value in change.items()
    }
    if "stages" in change:
        other["stages"] = [{**recipe["stages"][0], **change["stages"][0]}]
    with pytest.raises(OutputError, match=f"was made for another {key}.*or search into another output"):
        search_architecture(make_request(other, tmp_path / "out"))


def test_a_study_of_other_sizes_limits_or_measurements_is_refused(recipe, asked, tmp_path):
    search_architecture(make_request(recipe, tmp_path / "out"))
    for change, key in (
        ({"sizes": ShapeSizes((1, 2), (8, 12), (2,), (1,))}, "space.layers"),
        ({"limits": ShapeLimits(parameters=10**6)}, "limit.parameters"),
        ({"limits": ShapeLimits(latency_share=1.0)}, "limit.latency_share"),
    ):
        with pytest.raises(OutputError, match=f"was made for another {key}"):
            search_architecture(make_request(recipe, tmp_path / "out", **change))


def test_a_study_of_another_teacher_or_text_is_refused(recipe, asked, tmp_path):
    search_architecture(make_request(recipe, tmp_path / "out"))
    text = write_text(tmp_path / "text", 30)
    with pytest.raises(OutputError, match="was made for another corpus"):
        search_architecture(
            make_request(recipe | {"corpus": {**recipe["corpus"], "sources": [str(text)]}}, tmp_path / "out")
        )
    other = shape_search.make_teacher(tmp_path, "bert", seed=1, layers=3, hidden=16, heads=4, ffn=32)
    with pytest.raises(OutputError, match="was made for another teacher"):
        search_architecture(make_request(recipe | {"teacher": {"model": str(other)}}, tmp_path / "out"))


def test_workers_that_all_end_early_say_why_and_keep_what_there_is(recipe, asked, tmp_path, monkeypatch):
    search_architecture(make_request(recipe, tmp_path / "out", trials=2))
    monkeypatch.setattr(engine, "run_workers", lambda work, task, count, watch: ["Killed."] * count)
    with pytest.raises(TrainingError, match=r"before it was finished: Killed\. What is trained is kept in .*journal"):
        search_architecture(make_request(recipe, tmp_path / "out", workers=2))
    assert len(search_architecture(make_request(recipe, tmp_path / "out"))["shapes"]) == 6


def test_a_worker_that_fails_beside_others_is_told_of(recipe, asked, tmp_path, monkeypatch):
    def run_workers(work, task, count, watch):
        watch()
        work(task)
        watch()
        return ["Out of memory."]

    monkeypatch.setattr(engine, "run_workers", run_workers)
    console = Console(record=True, width=100, file=io.StringIO())
    record = search_architecture(make_request(recipe, tmp_path / "out", workers=2), console)
    assert record["cost"]["trained"] == 6 and "Out of memory." in console.export_text()


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_only_what_it_was_training(recipe, asked, files, tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-m", shape_search.__name__, *map(str, (*files, tmp_path / "out", log))]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as worker:
        until = time.monotonic() + 60
        while not log.exists() or len(log.read_text().splitlines()) < 2:
            assert time.monotonic() < until and worker.poll() is None
            time.sleep(0.05)
        worker.send_signal(signal.SIGKILL)
    first, killed = ([tuple(p) for p in json.loads(line)] for line in log.read_text().splitlines())
    states = [trial.state.name for trial in load_study(tmp_path / "out").trials]
    assert states.count("COMPLETE") == states.count("RUNNING") == 2
    record = search_architecture(make_request(recipe, tmp_path / "out"))
    assert asked.batches[0] == killed and not set(first) & set(asked.shapes)
    assert record["cost"]["trained"] == 6 and record["cost"]["failed"] == 2
