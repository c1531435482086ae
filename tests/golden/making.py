"""Folders of every kind, made by the command line as a user makes them, on tiny models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from tests.support.commands import call
from tests.support.comparisons import STUDENT, tiny_plan, write_teacher
from tests.support.corpora import write_text
from tests.support.recipes import MINILMV2, recipe_of
from tests.support.task_files import write_tasks

CHUNKS = "the DT B-NP\nmodel NN I-NP\nis VBZ B-VP\non IN B-PP\nit PRP B-NP\n. . O\n\n"
QUICK = ("--preset", "quick", "--set", "length=24", "--set", "epochs=1", "--set", "batch_size=8")
STEPS = ("--steps", 2)


class Made:
    """Makes each kind of folder when it is first asked for."""

    KINDS = (
        "run", "comparison", "search-mapping", "search-architecture", "search-teacher-layer", "evaluation", "export",
        "inspection",
    )  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.teacher = write_teacher(folder / "teacher")
        self.text = write_text(folder / "text", 40)
        self._made: dict[str, Path] = {}

    def __getitem__(self, kind: str) -> Path:
        if kind not in self._made:
            make: Callable[[], Path] = getattr(self, "_" + kind.replace("-", "_"))
            self._made[kind] = make()
        return self._made[kind]

    def _recipe(self, *methods: Mapping[str, object], **changes: object) -> dict:
        teacher = {"model": str(self.teacher), "name": "somebody/a-teacher"}
        changes = {"teacher": teacher, "student": {"shape": STUDENT}} | changes
        return recipe_of(self.teacher, self.text, *methods, length=24, held_out=0.3, **changes)

    def _write(self, name: str, content: dict) -> Path:
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        return path

    def _limbeck(self, *arguments: object) -> None:
        assert call(*arguments, "--quiet") == 0, arguments

    def _run(self) -> Path:
        evaluation = {"enabled": True, "latency_seconds": 0.2, "batch_sizes": [1], "length": 16}
        evaluation |= {"pairs": 60, "retrieval_pairs": 20}
        output = self.folder / "run"
        layers = {"name": "hidden_states", "mapping": "uniform_last"}
        recipe = self._recipe(layers, MINILMV2, evaluation=evaluation, output=str(output))
        for stage, name in zip(recipe["stages"], ("layers", "relations"), strict=True):
            stage["name"] = name
        self._limbeck("distill", self._write("run", recipe))
        return output

    def _comparison(self) -> Path:
        data = write_tasks(self.folder / "compared-tasks")
        plan = tiny_plan(
            self.teacher,
            self.text,
            name="which",
            evaluation={
                "tasks": ["rte"],
                "preset": "quick",
                "seeds": 1,
                "settings": {"epochs": 1, "length": 24},
                "held_out": {"blocks": 16, "pairs": 30, "retrieval_pairs": 10},
                "speed": {"enabled": True, "seconds": 0.2},
            },
        )
        output = self.folder / "comparison"
        self._limbeck("compare", self._write("comparison", plan), "--data", data, "--output", output)
        return output

    def _search_mapping(self) -> Path:
        recipe = self._write("search-mapping", self._recipe({"name": "hidden_states"}))
        output = self.folder / "search-mapping"
        self._limbeck(
            "search", "mapping", recipe, *STEPS, "--share", 1, "--generations", 2, "--population", 3,
            "--output", output,
        )  # fmt: skip
        return output

    def _search_architecture(self) -> Path:
        recipe = self._write("search-architecture", self._recipe({"name": "hidden_states"}))
        output = self.folder / "search-architecture"
        self._limbeck(
            "search", "architecture", recipe, *STEPS, "--layers", "1,2", "--hidden", "8,16", "--heads", 2, "--ffn", 2,
            "--trials", 3, "--batch", 3, "--device", "cpu", "--measure-length", 16, "--measure-seconds", 0.05,
            "--max-latency-share", 99, "--output", output,
        )  # fmt: skip
        return output

    def _search_teacher_layer(self) -> Path:
        recipe = self._recipe()
        recipe["stages"][0]["name"] = "relations"
        recipe = self._write("search-teacher-layer", recipe)
        output = self.folder / "search-teacher-layer"
        self._limbeck("search", "teacher-layer", recipe, "--steps", 4, "--output", output)
        return output

    def _evaluation(self) -> Path:
        data = write_tasks(self.folder / "evaluated-tasks")
        output = self.folder / "evaluation"
        self._limbeck(
            "evaluate", self["run"] / "student", "--teacher", self.teacher, "--tasks", "rte,mrpc", "--data", data,
            "--seeds", 1, "--output", output, "--speed", "--batch-sizes", "1", "--lengths", "8", "--seconds", 0.2,
            "--device", "cpu", *QUICK,
        )  # fmt: skip
        return output

    def _export(self) -> Path:
        output = self.folder / "export"
        self._limbeck("export", self["run"], "--format", "onnx-int8", "--seconds", 0.2, "--output", output)
        return output

    def _inspection(self) -> Path:
        output = self.folder / "inspection"
        texts, chunks = self.folder / "texts.txt", self.folder / "chunks.txt"
        texts.write_text("The teacher shows the student a layer.\nIt is a model of text.\n" * 8, encoding="utf-8")
        chunks.write_text(CHUNKS * 10, encoding="utf-8")
        for name in ("phrases", "attention", "similarity", "contribution"):
            source = ("--data", chunks) if name == "phrases" else ("--texts", texts)
            student = self["run"] / "student"
            self._limbeck("inspect", name, student, "--teacher", self.teacher, *source, "--output", output)
        return output
