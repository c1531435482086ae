"""`Scene`: the valid things that bad inputs are made from, built once and never changed."""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from tests.support.corpora import byte_tokenizer
from tests.support.models import make_teacher

from limbeck.api import distill
from limbeck.models.loading import load_model

WORDS = [
    "the",
    "teacher",
    "shows",
    "the",
    "student",
    "a",
    "layer",
    "of",
    "text",
    "and",
    "the",
    "student",
    "is",
    "a",
    "model",
    "that",
    "is",
    "small",
]


@dataclass(frozen=True)
class Scene:
    """A tiny teacher, its text, a recipe that is good, and a finished run.

    Args:
        root: Folder of all of them.
    """

    root: Path

    @cached_property
    def teacher(self) -> Path:
        """A tiny BERT with its tokenizer."""
        return make_teacher(self.root, "bert")

    @cached_property
    def text(self) -> Path:
        """A folder with sixty short documents in one file."""
        folder = self.root / "text"
        folder.mkdir()
        documents = [
            f"{' '.join(WORDS[: 5 + number % 9]).capitalize()} number {number}.\nWe read text {number} with a model."
            for number in range(60)
        ]
        (folder / "some.txt").write_text("\n\n".join(documents), encoding="utf-8")
        return folder

    @cached_property
    def tokenizer(self) -> Any:
        """A tokenizer of one token a byte."""
        return byte_tokenizer(
            "[CLS] $A [SEP]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]"
        )

    @cached_property
    def _recipe(self) -> dict[str, Any]:
        return {
            "name": "tiny",
            "output": "run",
            "seed": 1,
            "teacher": {"model": str(self.teacher)},
            "student": {"shape": {"layers": 2, "hidden": 24, "heads": 2, "ffn": 48}},
            "corpus": {"sources": [str(self.text)], "length": 32, "held_out": 0.2},
            "stages": [
                {
                    "method": {"name": "hidden_states", "mapping": "uniform"},
                    "training": {
                        "max_steps": 4, "per_device_train_batch_size": 8, "learning_rate": 1e-3, "bf16": False,
                        "logging_steps": 1, "save_steps": 2, "eval_steps": 2,
                    },
                }
            ],
            "evaluation": {"enabled": False},
        }  # fmt: skip

    def recipe(self, folder: Path) -> dict[str, Any]:
        """A recipe of the input's own, with its output in a folder."""
        return {**copy.deepcopy(self._recipe), "output": str(folder / "run")}

    def recipe_text(self, folder: Path) -> str:
        """The same as YAML."""
        return yaml.safe_dump(self.recipe(folder), sort_keys=False)

    @cached_property
    def run(self) -> Path:
        """The folder of a finished run."""
        folder = self.root / "finished"
        folder.mkdir()
        distill(self.recipe(folder), console=Console(quiet=True))
        return folder / "run"

    @cached_property
    def student(self) -> Any:
        """A model to put weights of the run's student into."""
        return load_model(self.run / "student")

    def copy_of(self, path: Path, folder: Path) -> Path:
        """A copy of a folder for an input to damage."""
        return Path(shutil.copytree(path, folder / path.name))

    def prepare(self) -> None:
        """Build everything, so that the processes that are forked share it."""
        assert self.teacher.is_dir()
        assert self.text.is_dir()
        assert self.tokenizer is not None
        assert self.student is not None
