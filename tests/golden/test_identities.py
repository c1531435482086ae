"""Identities of corpora, runs, cells, searches and comparisons: what is hashed or compared, field by field.

A field that is renamed, added or lost would make days of finished work be done again, or let work be continued that
belongs to something else.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import limbeck
from limbeck.core import hashing
from limbeck.core.hashing import fingerprint
from limbeck.corpus import CorpusSettings, LabelledSettings, build_corpus, build_labelled_corpus, open_stream
from limbeck.corpus.tokens.token_encoder import TokenEncoder
from limbeck.errors import OutputError
from limbeck.evaluation.plan.identity import data_fingerprint, training_set_fingerprint
from limbeck.evaluation.tasks.loading import load_task
from limbeck.kinds.registry import KINDS
from limbeck.models.fingerprint import model_fingerprint, tokenizer_fingerprint
from tests.golden.snapshot import check
from tests.support.commands import call
from tests.support.comparisons import tiny_plan, write_teacher
from tests.support.corpora import documents
from tests.support.methods import write_rows
from tests.support.models import tiny_tokenizer
from tests.support.searches import recipe_of
from tests.support.task_files import write_tasks

MODIFIED = 1_700_000_000
"""Seconds since 1970 that files are given, since identities of text hold when it was changed."""


@contextmanager
def recorded() -> Iterator[list[tuple[str, Any]]]:
    """List (hash, values) of every identity that is made."""
    made: list[tuple[str, Any]] = []

    def blake2b(content: bytes, *, digest_size: int) -> Any:
        found = hashlib.blake2b(content, digest_size=digest_size)
        made.append((found.hexdigest(), json.loads(content)))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "hashlib", SimpleNamespace(blake2b=blake2b, file_digest=hashlib.file_digest))
        yield made


class Names:
    """Replaces what differs from machine to machine by names.

    Args:
        **known: For each name its text, longest first where one contains another.
    """

    def __init__(self, **known: object) -> None:
        self._known = {str(text): f"<{name}>" for name, text in known.items()}

    def plain(self, value: Any) -> Any:
        """Return a copy of plain values with the names put in."""
        text = json.dumps(value)
        for known, name in self._known.items():
            text = text.replace(known, name)
        return json.loads(text)

    def hashed(self, made: list[tuple[str, Any]]) -> list[Any]:
        """Return what each identity was made of, once each; where one is part of another, it is named by its place."""
        found: list[Any] = []
        for text, values in made:
            if text not in self._known:
                found.append(self.plain(values))
                self._known[text] = f"<identity {len(found)}>"
        return found


def fixed_times(folder: Path) -> Path:
    """Give all files of a folder the same time of change."""
    for path in sorted(folder.rglob("*")):
        os.utime(path, (MODIFIED, MODIFIED))
    return folder


CHANGES = Path(__file__).with_name("changes.yaml")


def rows_fingerprints(task, folder):
    """The hashes of a task's rows and of those it is trained on."""
    data = load_task(task, data=folder)
    return {"rows": data_fingerprint(data), "training_set": training_set_fingerprint(data)}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a teacher, text and tasks, all changed at the same time."""
    folder = tmp_path_factory.mktemp("golden").resolve()
    write_teacher(folder).rename(folder / "teacher")
    (folder / "text").mkdir()
    for number, part in enumerate((documents(24)[:12], documents(24)[12:])):
        (folder / f"text/{number}.txt").write_text("\n\n".join(part), encoding="utf-8")
    write_tasks(folder / "tasks")
    return fixed_times(folder)


@pytest.fixture(scope="module")
def names(files):
    teacher = str(files / "teacher")
    return lambda **more: Names(
        teacher_weights=model_fingerprint(teacher),
        tokenizer_files=tokenizer_fingerprint(teacher),
        tokenizer=TokenEncoder(tiny_tokenizer()).fingerprint(),
        **more,
        files=files,
    )


def test_hashes_of_values_and_files(tmp_path):
    """The hash functions themselves, on content that no library writes."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "other"):
        (folder / name).write_text(f"content of {name}", encoding="utf-8")
    data = tmp_path / "data"
    write_tasks(data)
    check(
        "identities/hashes",
        {
            "values": fingerprint({"b": [1, 2.5, None, True], "a": {"é": "text"}}),
            "model": model_fingerprint(str(folder)),
            "tokenizer": tokenizer_fingerprint(str(folder)),
            "rows": {name: rows_fingerprints(name, data) for name in ("rte", "mrpc")},
        },
    )


def corpora(files: Path, cache: Path):
    """Build every kind of corpus once."""
    text, rows, tokenizer = str(files / "text"), files / "rows", tiny_tokenizer()
    more = {"length": 24, "held_out": 0.2}
    for settings in (
        CorpusSettings(sources=(text,), **more),
        CorpusSettings(sources=(text,), **more, unit="sentence", minimum_tokens=4, max_documents=10),
    ):
        build_corpus(settings, tokenizer, cache_dir=cache, workers=1)
    open_stream(CorpusSettings(sources=(text,), **more, streaming=True), tokenizer, cache_dir=cache)
    for task in ("classification", "regression", "question_answering"):
        spec = {**write_rows(rows, task), "held_out": 0.2}
        fixed_times(rows)
        kind = spec.pop("task")
        sources = tuple(spec.pop("sources"))
        columns = {key: value for key, value in kind.items() if key != "kind"}
        columns |= {"labels": ("one", "two", "three")} if task == "classification" else {}
        settings = LabelledSettings(kind=task, sources=sources, **spec, **columns)
        build_labelled_corpus(settings, tokenizer, KINDS[settings.task], cache_dir=cache, workers=1)


def test_corpora(files, names, tmp_path):
    with recorded() as made:
        corpora(files, tmp_path / "cache")
    check("identities/corpora", names().hashed(made))


def test_cells_of_an_evaluation(files, names, tmp_path):
    hashes = {task: rows_fingerprints(task, files / "tasks") for task in ("rte", "mrpc")}
    own = {f"{task}_{kind}": found for task, kinds in hashes.items() for kind, found in kinds.items()}
    overrides = ["length=32", "epochs=1", "batch_size=8", "bf16=false", "learning_rates=[1e-4,2e-4]"]
    with recorded() as made:
        result = limbeck.evaluate(
            [files / "teacher"], "rte,mrpc", output=tmp_path / "out", data=files / "tasks", preset="quick", seeds=1,
            overrides=[*overrides, "mrpc.keep=best_epoch"],
        )  # fmt: skip
    assert not result.failed
    rows = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text(encoding="utf-8").splitlines()]
    kept = ("training", "id", "model_fingerprint", "data_fingerprint", "settings", "seed", "preset", "select")
    found = names(**own)
    values = found.hashed(made)
    check(
        "identities/cells", {"hashed": values, "rows": found.plain([{key: row[key] for key in kept} for row in rows])}
    )


def search_recipe(files: Path, method: dict, shape) -> dict:
    recipe = recipe_of(files / "teacher", files / "text", shape, 24, method, 4)
    return recipe | {"name": "searched", "evaluation": {"enabled": False}}


RELATIONS = {"name": "minilmv2", "relation_heads": 4}
SEARCHES = {
    "mapping": ({"name": "elm"}, "--steps 2 --generations 1 --population 3"),
    "architecture": (
        RELATIONS,
        "--layers 1,2 --hidden 8,16 --heads 2 --ffn 1.5,2 --trials 2 --batch 2 --steps 2 --device cpu "
        "--measure-length 16 --measure-seconds 0.05",
    ),
    "teacher-layer": (RELATIONS, "--layers 1-3 --steps 4"),
}


@pytest.mark.parametrize("kind", SEARCHES)
def test_searches(kind, files, names, tmp_path):
    """What a study must have been made with to be continued."""
    method, options = SEARCHES[kind]
    recipe = tmp_path / "recipe.yaml"
    shape = {"layers": 2, "hidden": 16, "heads": 4, "ffn": 16}
    recipe.write_text(yaml.safe_dump(search_recipe(files, method, shape)), encoding="utf-8")
    with recorded() as made:
        assert call("search", kind, recipe, *options.split(), "--output", tmp_path / "out", "--quiet") == 0
    record = json.loads((tmp_path / "out/search.json").read_text(encoding="utf-8"))
    found = names()
    hashed = found.hashed(made)
    check(
        f"identities/search_{kind.replace('-', '_')}", {"hashed": hashed, "identity": found.plain(record["identity"])}
    )


def test_a_comparison(files, names, tmp_path):
    plan = tiny_plan(files / "teacher", files / "text", seeds=[1, 2], budget={"tokens": 300})
    plan["training"] |= {"warmup_steps": 0}
    plan["evaluation"] = {"held_out": {"blocks": 8, "pairs": 10, "retrieval_pairs": 10}, "speed": {"enabled": False}}
    with recorded() as made:
        result = limbeck.compare(plan, output=tmp_path / "out")
    assert not result.failed
    found = names(out=tmp_path / "out")
    hashed = found.hashed(made)
    cells = sorted(path.name for path in (tmp_path / "out/runs").iterdir())
    hashes = {text[:10] for text, _ in made}
    assert all(name[-10:] in hashes for name in cells)
    check(
        "identities/comparison",
        {"hashed": hashed, "fixed": found.plain(result.record["fixed"]), "runs": sorted(name[:-11] for name in cells)},
    )


def test_what_a_run_is_resumed_with(files, names, tmp_path):
    """Each change of a finished run's recipe either takes the run as it is, or is refused with the difference."""
    recipe = search_recipe(files, RELATIONS, {"layers": 1, "hidden": 16, "heads": 4, "ffn": 16})
    recipe["output"] = str(tmp_path / "run")
    recipe["stages"][0]["training"] |= {"max_steps": 2}
    limbeck.distill(recipe)
    found = names(run=tmp_path / "run")
    kept = found.plain(yaml.safe_load((tmp_path / "run/recipe.yaml").read_text(encoding="utf-8")))
    answers = {}
    for title, overrides in yaml.safe_load(CHANGES.read_text(encoding="utf-8")).items():
        try:
            limbeck.distill(recipe, overrides, resume=True)
            answers[title] = "taken as it is"
        except OutputError as error:
            answers[title] = found.plain(str(error)).split(";")[0]
    check("identities/resumed_run", {"recipe": kept, "changes": answers})
