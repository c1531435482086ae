"""Bad inputs through the whole command line, in a process each: one line on standard error, and the exit code 2."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.chaos_inputs import garbage, model_folders, recipe_documents, recipe_values
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import COUNTED, REFUSED, SILENT, UNCLEAR, Trial

from limbeck.cli.main import run


@dataclass(frozen=True)
class Outcome:
    """What a command left.

    Attributes:
        code: Its exit code.
        out: Standard output.
        errors: Standard error.
    """

    code: int
    out: str
    errors: str


def run_command(arguments: list[str], folder: Path) -> Outcome:
    """Run `limbeck` with arguments in a forked process, so that its imports are paid for once.

    Args:
        arguments: Without the name of the program.
        folder: Of the input; what the process writes goes beside it, and is gone at the end.
    """
    files = [folder / ".out", folder / ".errors"]
    child = os.fork()
    if child == 0:
        _become_the_command(arguments, files)
    try:
        _, status = os.waitpid(child, 0)
    except BaseException:
        os.kill(child, 9)
        os.waitpid(child, 0)
        raise
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    for file in files:
        file.unlink()
    return Outcome(os.waitstatus_to_exitcode(status), *texts)


def _become_the_command(arguments: list[str], files: list[Path]) -> None:
    """Never returns."""
    code = 70
    try:
        for number, file in enumerate(files, start=1):
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
            os.dup2(descriptor, number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        sys.argv = ["limbeck", *arguments]
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _judged(arguments: list[str], folder: Path, codes: tuple[int, ...]) -> str:
    outcome = run_command(arguments, folder)
    lines = outcome.errors.splitlines()
    if "Traceback" in outcome.errors or "a fault in limbeck" in outcome.errors or outcome.code not in (0, *codes):
        raise AssertionError(f"exit code {outcome.code}: {outcome.errors[-400:]}")
    if outcome.code == 0:
        return SILENT
    if outcome.code == 1:  # `status` of a run that is dead: shown, and the code says so.
        return (
            COUNTED if not lines and outcome.out and all(c.isprintable() or c == "\n" for c in outcome.out) else UNCLEAR
        )
    if len(lines) != 1 or not lines[0].startswith("error: ") or not lines[0].isprintable() or outcome.out:
        raise AssertionError(f"not one line: {outcome.errors[:400]!r} {outcome.out[:100]!r}")
    return REFUSED


def _command(folder: Path, *arguments: str | Path, codes: tuple[int, ...] = (2,)) -> Trial:
    given = [str(argument) for argument in arguments]
    usable = [argument.replace("\0", "?") for argument in given]  # No system passes a NUL on.
    what = " ".join(argument.replace(str(folder), "") for argument in usable)
    return Trial(f"limbeck {what[:100]!r}", partial(_judged, usable, folder, codes), (), str)


def _recipe(scene: Scene, folder: Path) -> Path:
    path = folder / "good.yaml"
    path.write_text(scene.recipe_text(folder), encoding="utf-8")
    return path


def recipe_file(random: Random, scene: Scene, folder: Path) -> Trial:
    """A recipe of the other kinds, given to a command that reads one."""
    makers = [
        *(maker for name, maker in recipe_documents.MAKERS.items() if name not in ("mark", "no_file")),
        *recipe_values.MAKERS.values(),
    ]  # fmt: skip
    random.choice(makers)(random, scene, folder)
    command = random.choice([
        ["validate"], ["distill"], ["distill", "--quiet"], ["search", "teacher-layer", "--output", f"{folder}/search"],
        ["search", "mapping", "--output", f"{folder}/search"],
    ])  # fmt: skip
    return _command(folder, *command, folder / "recipe.yaml")


def no_recipe(random: Random, scene: Scene, folder: Path) -> Trial:
    name = random.choice([
        "gone.yaml", str(folder), "/dev/null", "a[bold]b.yaml", r"a\[/].yaml", "[/].yaml", "a\x1b[2Jb.yaml",
        "a\nb.yaml",
        "x" * 5000, "~no-such-user/x.yaml", "é\u202e.yaml", ":smile:.yaml", "[link=x]y[/link]", r"\\[red].yaml",
        "a\udc80.yaml",
    ])  # fmt: skip
    command = random.choice([["validate"], ["distill"], ["compare", "--dry-run"]])
    return _command(folder, *command, name if "/" in name else f"{folder}/{name}")


def override(random: Random, scene: Scene, folder: Path) -> Trial:
    text = random.choice([
        "seed", "seed=x", "=1", "seed=[", "a\nb=1", "seed=\x1b[2J", "[bold]=1", "stages.9.name=x",
        "seed=!!python/name:os.system",
        "corpus.length=0", "teacher.model=[/]", r"seed=\[", "student.shape=6y7", f"{garbage.word(random)}=1",
        "seed=" + "9" * 5000,
        "teacher.model=/gone[/x]",
    ])  # fmt: skip
    return _command(folder, random.choice(["validate", "distill"]), _recipe(scene, folder), "--set", text)


def option(random: Random, scene: Scene, folder: Path) -> Trial:
    word = garbage.word(random)
    arguments = random.choice([
        ["--teacher", word + "/../x"], ["--student", "6y7"], ["--method", word], ["--steps", "0"], ["--steps", "x"],
        ["--length", "1"],
        ["--seed", "-1"], ["--learning-rate", "nan"], ["--learning-rate", "-1"], ["--learning-rate", "1e308"],
        ["--batch-size", "0"],
        ["--corpus", f"/{word}.txt"], ["--output", "/dev/null"], [f"--{word}"], ["--student", "[/]"],
        ["--steps", "9" * 5000],
        ["--corpus", ""], ["--method", ""], ["--resume", "--overwrite"], ["--seed", str(2**70)], ["--output", ""],
    ])  # fmt: skip
    return _command(folder, "distill", _recipe(scene, folder), *arguments)


def model_folder(random: Random, scene: Scene, folder: Path) -> Trial:
    name = random.choice([
        "config_that_is_no_json", "config_of_another_family", "pickled_weights", "index_that_lies", "remote_code",
        "weights_that_lie", "damaged_weights",
    ])  # fmt: skip
    model_folders.MAKERS[name](random, scene, folder)
    model = folder / scene.teacher.name
    command = random.choice([
        ["inspect", "similarity", model], ["benchmark", "model", model, "--seconds", "0.01"],
        ["evaluate", model, "--speed", "--seconds", "0.01", "--output", folder / "out"],
    ])  # fmt: skip
    return _command(folder, *command)


def result_folder(random: Random, scene: Scene, folder: Path) -> Trial:
    run = folder / "run"
    run.mkdir()
    name = random.choice(["run.json", "comparison.json", "evaluation.json", "search.json", "recipe.yaml"])
    (run / name).write_bytes(
        random.choice([b"{", b"[]", b"\xff", b"null", garbage.nested_json(random, 50_000).encode(), b"3"])
    )
    command = random.choice([
        ["status", run], ["status", folder / "gone"], ["distill", "--resume", "--output", run],
        ["status", run, "--json"],
        ["evaluate", scene.teacher, "--tasks", "sst2", "--data", folder, "--output", run],
        ["search", "mapping", _recipe(scene, folder), "--output", run],
        ["search", "teacher-layer", _recipe(scene, folder), "--output", run],
    ])  # fmt: skip
    return _command(folder, *command, codes=(2, 1) if command[0] == "status" else (2,))


def search_option(random: Random, scene: Scene, folder: Path) -> Trial:
    kind, arguments = random.choice([
        ("mapping", ["--population", "0"]), ("mapping", ["--crossover", "2"]), ("mapping", ["--crossover", "nan"]),
        ("mapping", ["--share", "0"]), ("mapping", ["--share", "nan"]), ("mapping", ["--parents", "x"]),
        ("mapping", ["--generations", "0"]),
        ("mapping", ["--teacher-layers", "9-3"]), ("mapping", ["--tasks", "x"]), ("mapping", ["--preset", "x"]),
        ("mapping", ["--elite", "-1"]),
        ("mapping", ["--workers", "0"]), ("mapping", ["--storage", "mongo://x"]), ("mapping", ["--name", ""]),
        ("mapping", ["--set-task", "x"]),
        ("mapping", ["--population", "9" * 40]), ("mapping", ["--generations", "9" * 40]),
        ("mapping", ["--elite", "9" * 30]),
        ("teacher-layer", ["--layers", "x"]), ("teacher-layer", ["--layers", "0"]),
        ("teacher-layer", ["--layers", "5"]),
        ("teacher-layer", ["--halving", "0"]), ("teacher-layer", ["--halving", "1"]),
        ("teacher-layer", ["--steps", "-1"]),
        ("teacher-layer", ["--steps", "9" * 30]), ("teacher-layer", ["--halving", "2", "--no-halving"]),
        ("teacher-layer", ["--steps-total", "0"]),
        ("architecture", ["--layers", "0"]), ("architecture", ["--layers", "x"]),
        ("architecture", ["--max-parameters", "x"]),
        ("architecture", ["--max-latency-share", "nan"]), ("architecture", ["--sampler", "x"]),
        ("architecture", ["--trials", "0"]),
        ("architecture", ["--device", "gpu"]), ("architecture", ["--max-latency-share", "-1"]),
        ("architecture", ["--batch", "0"]),
        ("architecture", ["--hidden", "9" * 400]), ("architecture", ["--heads", "7", "--hidden", "24"]),
        ("architecture", ["--ffn", "0"]),
    ])  # fmt: skip
    return _command(folder, "search", kind, _recipe(scene, folder), "--output", folder / "search", *arguments)


def evaluation_option(random: Random, scene: Scene, folder: Path) -> Trial:
    arguments = random.choice([
        ["--tasks", "ss2"], ["--tasks", ""], ["--tasks", "sst2", "--data", "/gone"],
        ["--tasks", "sst2", "--preset", "x"],
        ["--tasks", "sst2", "--set", "x=1"], ["--tasks", "sst2", "--set", "epochs=["],
        ["--speed", "--batch-sizes", "0"],
        ["--speed", "--lengths", "x"], ["--speed", "--device", "gpu"], ["--speed", "--seconds", "-1"],
        ["--tasks", "gone.yaml"],
        ["--speed", "--lengths", "9" * 5000], ["--tasks", "sst2", "--seeds", "0"], ["--tasks", "[/]"],
        ["--workers", "0"],
        ["--tasks", "sst2", "--teacher", "/gone"], ["--speed", "--lengths", "100000"], ["--speed", "--seconds", "nan"],
    ])  # fmt: skip
    return _command(folder, "evaluate", scene.teacher, "--output", folder / "out", *arguments)


MAKERS = {
    maker.__name__: maker
    for maker in (
        recipe_file, no_recipe, override, option, model_folder, result_folder, search_option, evaluation_option,
    )
}  # fmt: skip
