"""Folders to report on: real tiny ones, made once, and records as larger ones leave them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import limbeck
from limbeck.cli.main import build_app
from limbeck.core.records import plain
from limbeck.inspection import draw_maps, measure_contribution, measure_divergence, measure_similarity
from limbeck.recipe.load import load_recipe
from limbeck.report.inspection import write_inspection
from limbeck.report.search import write_search
from limbeck.search.architecture import search_architecture
from limbeck.search.requests import ProxyRequest
from limbeck.search.shape_space import ShapeLimits, ShapePoint
from limbeck.search.teacher_layer import TeacherLayerRequest, search_teacher_layer
from tests.support import shape_search
from tests.support.comparisons import tiny_plan, write_teacher
from tests.support.corpora import write_text
from tests.support.inspection import TEXTS, tiny_subject
from tests.support.mapping_search import recipe_data
from tests.support.mapping_search import write_teacher as write_search_teacher
from tests.support.models import make_teacher
from tests.support.reports import mapping_search_record
from tests.support.task_files import write_tasks


@pytest.fixture(scope="session")
def run_folder(bert_folder, text_folder, tmp_path_factory) -> Path:
    """A finished run of two stages, compared with its teacher."""
    folder = tmp_path_factory.mktemp("reported") / "run"
    training = {
        "max_steps": 6, "per_device_train_batch_size": 8, "learning_rate": 1e-3, "bf16": False, "logging_steps": 1,
        "eval_steps": 3,
    }  # fmt: skip
    limbeck.distill(
        {
            "name": "tiny",
            "output": str(folder),
            "seed": 1,
            "teacher": {"model": str(bert_folder), "name": "somebody/a-teacher"},
            "student": {"shape": {"layers": 2, "hidden": 24, "heads": 2, "ffn": 48}},
            "corpus": {"sources": [str(text_folder)], "length": 32, "held_out": 0.3},
            "stages": [
                {
                    "name": "layers",
                    "method": {"name": "hidden_states", "mapping": "uniform_last"},
                    "training": training,
                },
                {"name": "relations", "method": {"name": "minilmv2", "relation_heads": 4}, "training": training},
            ],
            "evaluation": {"enabled": True, "latency_seconds": 0.2, "batch_sizes": [1], "length": 16},
        }
    )
    return folder


@pytest.fixture(scope="session")
def comparison_folder(tmp_path_factory) -> Path:
    """A finished comparison of two methods with two seeds, on a task, with speeds."""
    folder = tmp_path_factory.mktemp("compared")
    plan = tiny_plan(
        write_teacher(folder / "teacher"),
        write_text(folder / "text"),
        name="which",
        seeds=[1, 2],
        evaluation={
            "tasks": ["rte"],
            "preset": "quick",
            "seeds": 1,
            "settings": {"epochs": 1, "length": 24},
            "held_out": {"blocks": 16, "pairs": 30, "retrieval_pairs": 10},
            "speed": {"enabled": True, "seconds": 0.2},
        },
    )
    limbeck.compare(plan, output=folder / "out", data=write_tasks(folder / "tasks"))
    return folder / "out"


@pytest.fixture(scope="session")
def mapping_folder(tmp_path_factory) -> Path:
    """A finished search of mappings with real students."""
    folder = tmp_path_factory.mktemp("searched")
    shape = {"shape": {"layers": 2, "hidden": 12, "heads": 2, "ffn": 16}}
    data = recipe_data(write_search_teacher(folder, layers=4), write_text(folder / "text"), student=shape)
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(data), encoding="utf-8")
    options = ["--steps", "2", "--share", "1", "--generations", "2", "--population", "3", "--quiet", "--output"]
    done = CliRunner().invoke(build_app(), ["search", "mapping", str(recipe), *options, str(folder / "out")])
    assert done.exit_code == 0, done.output
    return folder / "out"


@pytest.fixture(scope="session")
def architecture_folder(tmp_path_factory) -> Path:
    """A finished search of shapes whose losses and latencies are known; one shape diverged, some were cut."""
    folder = tmp_path_factory.mktemp("shaped")
    data = shape_search.recipe_data(shape_search.write_teacher(folder), write_text(folder / "text"))
    limits = ShapeLimits(latency_share=0.45)
    with pytest.MonkeyPatch.context() as patch:
        asked = shape_search.install(patch)
        asked.diverges.add(ShapePoint(1, 8, 2, 1))
        options = {"trials": 14, "prune": True, "batch": 4, "limits": limits}
        record = search_architecture(shape_search.make_request(data, folder / "out", **options))
    write_search(folder / "out", record, {})
    return folder / "out"


@pytest.fixture(scope="session")
def teacher_layer_folder(tmp_path_factory) -> Path:
    """A finished search of teacher layers with real students."""
    folder = tmp_path_factory.mktemp("layered")
    teacher = make_teacher(folder, "bert", layers=4, hidden=16, heads=4, ffn=32)
    data = shape_search.recipe_data(teacher, write_text(folder / "text", 60), student={"shape": "2x8h4"})
    data["stages"][0] |= {"method": {"name": "minilmv2", "relation_heads": 4}}
    data["stages"][0]["training"] |= {"max_steps": 6}
    proxy = ProxyRequest(load_recipe(data), folder / "out", "layers")
    record = search_teacher_layer(TeacherLayerRequest(proxy))
    write_search(folder / "out", record, {})
    return folder / "out"


@pytest.fixture(scope="session")
def inspection_folder(tmp_path_factory) -> Path:
    """What three inspections of a student and its teacher left."""
    folder = tmp_path_factory.mktemp("inspected")
    student, teacher = tiny_subject(name="runs/mine/student", layers=2), tiny_subject(name="teacher")
    maps = draw_maps(student, teacher, TEXTS[0], layers=[(1, 2), (2, 4)])
    found = {
        "attention": {"maps": maps, "divergence": measure_divergence(student, teacher, TEXTS)},
        "similarity": measure_similarity(student, teacher, TEXTS),
        "contribution": [measure_contribution(one, TEXTS) for one in (student, teacher)],
    }
    for name, result in found.items():
        write_inspection(folder, name, {"inspection": name, "result": plain(result)}, {})
    return folder


@pytest.fixture
def search_folder(tmp_path) -> Path:
    """The record of a search of ELM's size."""
    record = mapping_search_record()
    write_search(tmp_path / "elm", record, {})
    return tmp_path / "elm"


@pytest.fixture
def copied_run(run_folder, tmp_path):
    """Copy the run without its weights, to be damaged."""

    def copy(name: str = "copy") -> Path:
        folder = tmp_path / name
        for path in sorted(run_folder.rglob("*")):
            if path.suffix in (".json", ".jsonl", ".yaml", ".md") and path.is_file():
                target = folder / path.relative_to(run_folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
        return folder

    return copy


@pytest.fixture
def change_record():
    """Change the record of a folder."""

    def change(path: Path, edit) -> None:
        record = json.loads(path.read_text(encoding="utf-8"))
        edit(record)
        path.write_text(json.dumps(record), encoding="utf-8")

    return change
