"""`--set` texts that lead nowhere, or set what cannot be."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

from benchmarks.chaos_inputs import garbage, recipe_values
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import EQUAL, SILENT, Trial

from limbeck.api import validate
from limbeck.evaluation.protocols.overrides import parse_overrides
from limbeck.recipe.plan import RunPlan


def _override(scene: Scene, folder: Path, text: str, *names: str) -> Trial:
    path = folder / "recipe.yaml"
    path.write_text(scene.recipe_text(folder), encoding="utf-8")
    return Trial(f"--set {text[:80]!r}", partial(validate, path, [text]), names)


def no_path(random: Random, scene: Scene, folder: Path) -> Trial:
    text = random.choice([
        "", "=", "seed", "=1", ".=1", "..=1", "seed.=1", ".seed=1", "a..b=1", "seed..=", garbage.word(random), " = ",
        "stages[0].name=x", "stages/0/name=x", "\n=\n", garbage.control_text(random), "seed:3", "seed 3", "--set",
        "\0=1", garbage.control_text(random) + "=1", garbage.markup_text(random) + "=1",
    ])  # fmt: skip
    return _override(scene, folder, text, "verride", "unknown key", "key of")


def nowhere(random: Random, scene: Scene, folder: Path) -> Trial:
    word = garbage.word(random)
    path = random.choice([
        word, f"{word}.a", f"teacher.{word}", f"stages.0.{word}", f"stages.{random.randint(1, 99)}.name",
        "stages.-1.name", "stages.x.name", "stages.0x0.name", "stages.².name", "stages.٣.name", "stages.1e0.name",
        f"stages.{'9' * 5000}.name", "seed.a", "name.a.b", "corpus.sources.7", "corpus.sources.a",
        "stages.0.method.a.b",
        "stages.0.training.max_steps.a", "student.shape.layers.x", f"{'a.' * 10_000}b", "teacher.model.x",
        "stages.0.text.length.x", "evaluation.enabled.x", "corpus.length.0", f"stages.0.training.{'a.' * 200}b",
    ])  # fmt: skip
    value = random.choice(["1", "x", "[]", "{}", "null", "true"])
    return _override(scene, folder, f"{path}={value}")


def no_yaml(random: Random, scene: Scene, folder: Path) -> Trial:
    value = random.choice([
        "[", "{", "'", '"', "[1", "{a: 1", "!!python/name:os.system", "!x 1", "*a", "&a [*a]", "a: b: c", "- 1\nb: 2",
        "@", "`", "%", "|", ">", "[1, 2", "{a", "\x00", "\x1b", "---\n1\n---\n2", "[" * 400, "{a: " * 3000,
    ])  # fmt: skip
    return _override(scene, folder, f"{random.choice(['seed', 'name', 'corpus.length', 'teacher.name'])}={value}")


def wrong_value(random: Random, scene: Scene, folder: Path) -> Trial:
    path = random.choice(recipe_values.WHOLE)
    value = random.choice([
        "-5", "many", "1e30", "1.5", ".nan", ".inf", "-.inf", "[]", "{}", "''", "0x", "1e400", "9" * 400,
        "0x" + "f" * 5000, "~x", "1:30", "2020-01-01", "true", "yes", "-0.5", "1_", "½", "१२x", "1 2", "\u202e3",
        "0b1", "1,000", "10" * 60,
    ])  # fmt: skip
    return _override(scene, folder, f"{path}={value}")


def absurd_number(random: Random, scene: Scene, folder: Path) -> Trial:
    value = random.choice(["-1", "-1e-9", "1e308", ".nan", ".inf", "-.inf", "1e999", "nan", "inf", "9" * 40])
    return _override(scene, folder, f"{random.choice(recipe_values.NUMBERS)}={value}")


def wrong_name(random: Random, scene: Scene, folder: Path) -> Trial:
    word = garbage.word(random)
    path = random.choice([
        "corpus.unit", "teacher.dtype", "student.untrained", "student.initialise.layers", "evaluation.pooling",
        "stages.0.method", "stages.0.method.name", "student.shape", "stages.0.guard.on_bad_loss",
        "stages.0.method.mapping",
        "stages.0.training.lr_scheduler_type", "stages.0.training.optim", "stages.0.training.report_to",
    ])  # fmt: skip
    value = random.choice([word, garbage.markup_text(random), word.upper(), f"'{word} '", f"{word}/{word}", "''"])
    return _override(scene, folder, f"{path}={value}")


def spelt_otherwise(random: Random, scene: Scene, folder: Path) -> Trial:
    """Legal ways to write a number that is meant."""
    number = random.randint(1, 2000)
    text = random.choice(
        [f"{number}", f" {number}", f"+{number}", f"{number:#x}", f"'{number}'", f"{number}.0", f"{number} # x"]
    )

    def same(plan: RunPlan) -> str:
        return EQUAL if plan.recipe.seed == number else SILENT

    trial = _override(scene, folder, f"seed={text}")
    return Trial(trial.what, trial.act, accepted=same)


def evaluation_setting(random: Random, scene: Scene, folder: Path) -> Trial:
    """Of `limbeck evaluate --set`, as far as the text itself goes."""
    word = garbage.word(random)
    text = random.choice([
        word, f"{word}=1", f"sst2.{word}=1", f"{word}.epochs=1", "epochs", "=3", "epochs=[", "epochs=!x 1", "=",
        "sst2.epochs.x=1", "sst2..epochs=1", "mnli.epochs=1", ".epochs=1", " =1", garbage.control_text(random),
        "epochs=&a [*a]", f"epochs={'[' * 300}", "epochs={a: 1, a: 2}", "sst2.=1", "Epochs=1",
    ])  # fmt: skip
    return Trial(f"evaluate --set {text[:60]!r}", partial(parse_overrides, [text], ["sst2"]), ("--set",))


MAKERS = {
    maker.__name__: maker
    for maker in (
        no_path, nowhere, no_yaml, wrong_value, absurd_number, wrong_name, spelt_otherwise, evaluation_setting,
    )
}  # fmt: skip
