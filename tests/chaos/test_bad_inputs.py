"""Some two hundred bad inputs of every kind: refused in one line, or counted; and the judge sees every fault.

Thousands, by any seed: `python -m benchmarks.chaos_inputs`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.chaos_inputs import trial
from benchmarks.chaos_inputs.kinds import KINDS, spread
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import FAULTS, GOOD, Trial, is_clear, judge
from benchmarks.chaos_inputs.worker import try_all, try_one

from limbeck.errors import RecipeError

SEED = 7
NOT_IN_SHORT = ("large text files", "commands")
"""They take seconds each; what they find is in tests of their own too."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    found = Scene(tmp_path_factory.mktemp("scene"))
    found.prepare()
    return found


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in NOT_IN_SHORT])
def test_bad_inputs_are_refused_or_counted(kind: str, scene: Scene, tmp_path: Path) -> None:
    inputs = [entry for entry in spread(200) if entry[0] == kind]
    found = list(try_all(SEED, inputs, scene, tmp_path))
    assert [verdict for verdict in found if verdict.verdict in FAULTS] == []
    assert len(found) == len(inputs)


def test_every_kind_and_maker_has_its_turn() -> None:
    inputs = spread(2500)
    assert len(inputs) >= 2400
    for name, kind in KINDS.items():
        assert sum(entry[0] == name for entry in inputs) >= len(kind.makers)


def test_an_input_is_the_same_again(scene: Scene, tmp_path: Path) -> None:
    first, second = (try_one(SEED, "overrides", 3, scene, tmp_path) for _ in range(2))
    assert (first.what, first.verdict, first.maker) == (second.what, second.verdict, second.maker)
    assert try_one(SEED + 1, "overrides", 3, scene, tmp_path).what != first.what


def refuse(line: str) -> Any:
    raise RecipeError(line)


def stray(folder: Path) -> Any:
    (folder.parent / "outside").write_text("x")
    refuse("seed")


@pytest.mark.parametrize(
    ("verdict", "act", "accepted"),
    [
        (trial.REFUSED, lambda folder: refuse("seed is -1"), None),
        (trial.UNCLEAR, lambda folder: refuse("something is wrong"), None),
        (trial.UNCLEAR, lambda folder: refuse(""), None),
        (trial.TRACEBACK, lambda folder: {}["x"], None),
        (trial.SILENT, lambda folder: 3, None),
        (trial.SILENT, stray, None),
        (trial.COUNTED, lambda folder: 3, lambda found: trial.COUNTED),
        (trial.EQUAL, lambda folder: 3, lambda found: trial.EQUAL if found == 3 else trial.SILENT),
        (trial.HANG, lambda folder: time.sleep(9), None),
        (trial.MEMORY, lambda folder: bytearray(2**62), None),
    ],
)
def test_the_judge_sees_every_fault(verdict: str, act: Callable[[Path], Any], accepted: Any, tmp_path: Path) -> None:
    def make(folder: Path) -> Trial:
        return Trial("", partial(act, folder), ("seed",), accepted)

    assert judge(make, tmp_path, 0.2)[1] == verdict
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", ["seed\nx", "seed\x1b[2J", "seed" * 3000, "nothing of it"])
def test_a_line_has_to_be_clear(line: str) -> None:
    assert not is_clear(line, ("seed",))
    assert is_clear("seed is -1", ("seed",)) and not is_clear("", ())


def test_a_process_that_dies_is_replaced(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(random: Any, scene: Scene, folder: Path) -> Trial:
        return Trial("", lambda: os._exit(9))

    monkeypatch.setitem(KINDS["overrides"].makers, "no_path", die)  # type: ignore[arg-type]
    found = list(try_all(SEED, [("overrides", 0), ("overrides", 1)], scene, tmp_path))
    assert found[0].verdict == trial.MEMORY
    assert found[1].verdict in GOOD
