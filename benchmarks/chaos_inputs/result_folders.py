"""Folders of runs, comparisons, evaluations and searches whose files are damaged, or are none."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import yaml
from benchmarks.chaos_inputs import garbage
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import COUNTED, EQUAL, SILENT, Trial
from rich.console import Console

from limbeck.api import compare, distill
from limbeck.cli.status import status
from limbeck.comparison.checks import check_plan
from limbeck.comparison.folder import COMPARISON
from limbeck.comparison.load import load_plan
from limbeck.core.folders import claim
from limbeck.core.run_status import find_runs, status_of
from limbeck.evaluation.run.output_folder import prepare_folder
from limbeck.evaluation.run.results_file import ResultsFile
from limbeck.search.folder import prepare_search_folder
from limbeck.search.storage import open_storage


def _json_garbage(random: Random) -> bytes:
    return random.choice([
        b"", b"{", b"[]", b"3", b"null", b'"x"', b"\0" * 50, garbage.noise(random), b"\xff{}", b"{}{}", b"NaN",
        garbage.nested_json(random, 100_000).encode(), garbage.nested_json(random, 5000).encode(), b"{'a': 1}", b"[{}]",
        b"9" * 5000, b'{"a": 1',
    ])  # fmt: skip


def _any_value(random: Random) -> Any:
    return random.choice([
        None, True, 3, -1, 1e308, garbage.HUGE, "", "x", [], {}, [1], {"a": 1}, float("nan"), float("inf"),
        garbage.control_text(random), garbage.markup_text(random), [[]], "2020-01-01", "x" * 100_000, -float("inf"),
    ])  # fmt: skip


def _show(folder: Path, wanted: Callable[[str], bool]) -> str:
    """What `limbeck status` does: reads, and prints in lines that a terminal shows."""
    for run in find_runs([folder]):
        found = status_of(run)
        if not wanted(found.status):
            return SILENT
    for as_json in (False, True):
        try:
            with Path(os.devnull).open("w") as nowhere, _output_to(nowhere):
                status(folders=[folder], as_json=as_json, portable=False)
        except Exception as error:
            if type(error).__name__ != "Exit":  # Its exit code, for a run that is dead.
                raise
    return COUNTED


class _output_to:  # noqa: N801 - used as a function
    """Standard output into a file, for as long as it lasts."""

    def __init__(self, file: Any) -> None:
        self._file, self._kept = file, -1

    def __enter__(self) -> None:
        self._kept = os.dup(1)
        os.dup2(self._file.fileno(), 1)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, 1)
        os.close(self._kept)


def _verdict(found: str) -> str:
    return found


def status_of_a_record_that_is_none(random: Random, scene: Scene, folder: Path) -> Trial:
    """Nothing is known of such a run but that no process has it: it is shown as dead."""
    (folder / "run.json").write_bytes(_json_garbage(random))
    return Trial("run.json", partial(_show, folder, lambda said: said == "dead"), (), _verdict)


def status_of_strange_values(random: Random, scene: Scene, folder: Path) -> Trial:
    """Whatever a record and a sign of life say, it is shown as text, and never as a run that is well."""
    record = {"name": "x", "status": "running", "updated": "2026-01-01T00:00:00+00:00", "problem": "none"}
    beat: dict[str, Any] = {
        "time": "2026-01-01T00:00:00+00:00", "activity": "training", "stage": "a", "stage_number": 1, "stages": 2,
        "step": 3,
        "steps": 4, "tokens_per_second": 5.0, "seconds_left": 6.0, "checkpoint": 2, "loss": 1.0,
    }  # fmt: skip
    owner: dict[str, Any] = {"host": "nowhere", "pid": 1, "started": 1.0, "since": "x"}
    chosen = random.choice([record, beat, owner])
    key = random.choice(list(chosen))
    chosen[key] = _any_value(random)
    for name, content in (("run.json", record), ("heartbeat.json", beat), (".run.lock", owner)):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    what = f"{key} {garbage.shown(chosen[key])}"
    return Trial(what, partial(_show, folder, lambda said: said == "dead"), (), _verdict)


def status_of_no_run(random: Random, scene: Scene, folder: Path) -> Trial:
    (folder / "file").write_text("x")
    (folder / "empty").mkdir()
    name = random.choice([
        folder / "file", folder / "empty", folder / "gone", Path("a\0b"), Path(garbage.control_text(random)),
        Path("x" * 5000),
        folder / garbage.markup_text(random), Path("/dev/null"), Path(),
    ])  # fmt: skip
    return Trial(f"status of {str(name)[:40]!r}", partial(find_runs, [name]))


def resume_of_a_damaged_run(random: Random, scene: Scene, folder: Path) -> Trial:
    """A finished run of which a file is damaged: refused, or finished again as it was."""
    run = scene.copy_of(scene.run, folder)
    name = random.choice(["recipe.yaml", "recipe.yaml", "run.json", "heartbeat.json", ".run.lock"])
    good = (run / name).read_bytes() if (run / name).exists() else b"{}"
    content = random.choice(
        [_json_garbage(random), garbage.damaged(random, good), b"a: [1", b"!!python/name:os.system"]
    )
    (run / name).write_bytes(content)
    recipe = {**scene.recipe(folder), "output": str(run)}

    def whole(result: Any) -> str:
        return COUNTED if (result.student / "model.safetensors").is_file() else SILENT

    act = partial(distill, recipe, resume=True, console=Console(quiet=True))
    return Trial(f"{name}: {content[:20]!r}", act, (str(run), "recipe"), whole)


def resume_of_strange_values(random: Random, scene: Scene, folder: Path) -> Trial:
    run = scene.copy_of(scene.run, folder)
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    key = random.choice(["timings", "stages", "status", "created", "name", "evaluation", "peak_memory_bytes"])
    record[key] = _any_value(random)
    (run / "run.json").write_text(json.dumps(record), encoding="utf-8")

    def whole(result: Any) -> str:
        return COUNTED if (result.student / "model.safetensors").is_file() else SILENT

    act = partial(distill, {**scene.recipe(folder), "output": str(run)}, resume=True, console=Console(quiet=True))
    return Trial(f"run.json {key} {garbage.shown(record[key])}", act, (str(run),), whole)


def output_that_is_none(random: Random, scene: Scene, folder: Path) -> Trial:
    (folder / "file").write_text("x")
    (folder / "other").mkdir()
    (folder / "other" / "mine.txt").write_text("x")
    output = random.choice([
        folder / "file", folder / "file" / "below", folder / "other", "/dev/null", "/proc/none", "/dev/null/x",
        "x" * 5000,
        "~no-such-user/x", "\0", garbage.control_text(random), "", " ",
    ])  # fmt: skip
    options = random.choice([{}, {"overwrite": True}, {"resume": True}, {"resume": True, "overwrite": True}])
    recipe = {**scene.recipe(folder), "output": str(output)}
    act = partial(distill, recipe, console=Console(quiet=True), **options)
    return Trial(f"output {str(output)[-30:]!r} {sorted(options)}", act, ("utput", "resume=True"))


def folder_of_a_comparison(random: Random, scene: Scene, folder: Path) -> Trial:
    fixed = {"teacher": "x", "budget": 1}
    content = random.choice([
        _json_garbage(random), json.dumps({"fixed": _any_value(random) or 3}).encode(),
        json.dumps({"fixed": {"teacher": [_any_value(random)]}}).encode(),
        json.dumps({"fixed": {"budget": [garbage.HUGE]}}).encode(),
    ])  # fmt: skip
    (folder / "comparison.json").write_bytes(content)
    where = str(folder / "comparison.json")

    def empty(found: Any) -> str:
        return EQUAL if found in ({}, {"a": 1}) or content in (b"{}", b'{"fixed": {}}') else SILENT

    return Trial(
        f"comparison.json {content[:30]!r}", partial(claim, folder, COMPARISON, fixed), (where, str(folder)), empty
    )


def plan_of_a_comparison(random: Random, scene: Scene, folder: Path) -> Trial:
    recipe = scene.recipe(folder)
    plan: dict[str, Any] = {
        "teacher": recipe["teacher"], "corpus": recipe["corpus"], "students": [recipe["student"]["shape"]],
        "methods": ["minilmv2", {"name": "hidden_states", "mappings": ["last", [0, 4]]}], "budget": {"tokens": 1000},
        "evaluation": {"held_out": {"enabled": True}, "speed": {"enabled": False}},
    }  # fmt: skip
    key, value = random.choice([
        ("students", random.choice([[], [1], [[]], {}, "x", [None], ["6x7"], ["0x0"], [{"layers": 2}], ["2x24h2",
        "2x24h2"], [True]])),
        ("methods", random.choice([[], [1], "minilmv2", [[]], [{}], ["minilm2"], ["minilmv2"] * 2,
        [{"name": "minilmv2", "mappings": ["last"]}],
                                   [{"name": "hidden_states", "mappings": [[0, 0]]}], [{"name": "x", "stages": []}],
                                   [None],
                                   [{"name": "hidden_states", "shares": [0]}],
                                   [{"name": "mlkd_bert", "shares": [1e308, 1e308, 1]}],
                                   [{"name": "hidden_states", "options": {"mapping": 3}}],
                                   [{"name": "hidden_states", "title": ""}]])),
        ("budget", random.choice([{}, {"tokens": 0}, {"tokens": -1}, {"tokens": "many"}, 5, [], {"tokens": 1e308},
        {"tokens": float("nan")}, {"tokens": True}])),
        ("seeds", random.choice([[], [-1], [1, 1], [2**40], ["x"], 1.5, {}, [True], [1.5], [garbage.HUGE]])),
        ("teacher", random.choice([{}, 3, {"model": "/gone"}, {"model": ""}, [], {"modle": "x"}])),
        ("training", random.choice([{"max_steps": 3}, {"learning_rate": -1}, {"x": 1}, 3, {"num_train_epochs": 1},
        {"learning_rate": 1e308}])),
        ("evaluation", random.choice([{"tasks": ["x"]}, {"preset": "x"}, {"held_out": {"enabled": False}},
        {"seeds": 0}, 3, {"workers": 0},
                                      {"speed": {"lengths": [-1]}}, {"speed": {"batch_sizes": [0]}},
                                      {"speed": {"device": "gpu9"}},
                                      {"held_out": {"blocks": garbage.HUGE}}, {"settings": {"x": 1}},
                                      {"speed": {"lengths": [garbage.HUGE]}}])),
        (garbage.word(random), 1), ("skip_impossible", "maybe"),
        ("name", random.choice([3, [], "", garbage.control_text(random)])),
    ])  # fmt: skip
    plan[key] = value
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(plan), encoding="utf-8")

    def check() -> Any:
        return compare(path, output=folder / "out") if key == "evaluation" else check_plan(load_plan(path))

    return Trial(f"plan {key} {garbage.shown(value)}", check)


def folder_of_an_evaluation(random: Random, scene: Scene, folder: Path) -> Trial:
    """Lines of results that are none are passed over, as those are that were not written to their end."""
    content = random.choice(
        [_json_garbage(random), json.dumps({"preset": _any_value(random), "set": _any_value(random)}).encode()]
    )
    (folder / "evaluation.json").write_bytes(content)
    (folder / "results.jsonl").write_text('{"id": "a", "status": "finished"}\n')
    act = partial(prepare_folder, folder, preset="quick", overrides=[])
    return Trial(f"evaluation.json {content[:30]!r}", act, (str(folder),))


def rows_of_an_evaluation(random: Random, scene: Scene, folder: Path) -> Trial:
    good = json.dumps({"id": "good", "status": "finished", "scores": {}})
    bad = random.choice([
        _json_garbage(random), json.dumps({"id": _any_value(random), "status": "finished"}).encode(),
        json.dumps({"id": [1], "status": "finished"}).encode(), json.dumps({"id": {}, "status": "finished"}).encode(),
        json.dumps({"id": "x", "status": _any_value(random)}).encode(), good[:-9].encode(),
    ])  # fmt: skip
    (folder / "results.jsonl").write_bytes(bad.replace(b"\n", b"") + b"\n" + good.encode() + b"\n")

    def only_good(found: dict[str, Any]) -> str:
        return COUNTED if "good" in found and all(isinstance(key, str) for key in found) else SILENT

    return Trial(f"results.jsonl {bad[:40]!r}", ResultsFile(folder).finished, (str(folder),), only_good)


def folder_of_a_search(random: Random, scene: Scene, folder: Path) -> Trial:
    content = random.choice([
        _json_garbage(random), json.dumps({"kind": _any_value(random), "name": "mapping"}).encode(),
        json.dumps({"kind": "mapping", "name": _any_value(random)}).encode(),
    ])  # fmt: skip
    (folder / "search.json").write_bytes(content)
    act = partial(prepare_search_folder, folder, kind="mapping", name="mapping")
    return Trial(f"search.json {content[:30]!r}", act, (str(folder),))


def journal_of_a_search(random: Random, scene: Scene, folder: Path) -> Trial:
    path = folder / "search.journal"
    start = b'{"op_code": 0, "worker_id": "x", "study_name": "a", "directions": [1]}\n'
    place: Any = path
    way = random.randrange(3)
    if way == 0:
        path.write_bytes(random.choice([
            garbage.noise(random), b"SQLite format 3\0" + bytes(50), b"{}\n", b"[]\n", b"text",
            start + garbage.noise(random) + b"\n",
            start + b'{"op_code": 99}\n', b'{"op_code": "x"}\n', b'{"op_code":' + b"[" * 100_000 + b"\n",
            start + b"3\n", start + b"null\n",
            b'{"op_code": 4}\n',
        ]))  # fmt: skip
    elif way == 1:
        path.mkdir()
    else:
        place = random.choice([
            "mongo://x/y", "sqlite://", "sqlite:///", "://", "http://x", "sqlite:", "postgresql://x:y@[::1",
            "mysql://a:b:c/d",
            f"{folder}/gone/../\0", "postgresql://u:p@h:port/d", garbage.control_text(random) + "://x",
            f"sqlite:///{folder}/a/b/c.db",
            "redis://x",
        ])  # fmt: skip
    return Trial(f"journal {str(place)[-40:]!r}", partial(open_storage, place))


MAKERS = {
    maker.__name__: maker
    for maker in (
        status_of_a_record_that_is_none, status_of_strange_values, status_of_no_run, resume_of_a_damaged_run,
        resume_of_strange_values, output_that_is_none, folder_of_a_comparison, plan_of_a_comparison,
        folder_of_an_evaluation,
        rows_of_an_evaluation, folder_of_a_search, journal_of_a_search,
    )
}  # fmt: skip
