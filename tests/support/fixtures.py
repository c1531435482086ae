"""Fixtures of all tests: one thread, no shared cache, and a tiny run."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import accelerate
import pytest
import torch

import tests.support.triton_mode  # noqa: F401 - before transformers
from tests.support.commands import limbeck  # noqa: F401 - a fixture
from tests.support.models import make_teacher
from tests.support.recipes import recipe_of


@pytest.fixture(scope="session", autouse=True)
def _alone(tmp_path_factory):
    """Keep corpora that tests build out of the user's cache, and wait for no disk and no collection of garbage.

    Tiny tensors: threads only cost, and one thread sums in one order. Every training begins with a full collection,
    which takes as long as some steps of tiny models; the automatic ones are enough here.
    """
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMBECK_CACHE", str(tmp_path_factory.mktemp("limbeck-cache")))
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(accelerate.utils.memory, "gc", SimpleNamespace(collect=lambda: 0))
        yield


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory) -> Path:
    """A tiny BERT teacher with its tokenizer, on disk."""
    return make_teacher(tmp_path_factory.mktemp("teacher"), "bert")


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory) -> Path:
    """Some sixty short documents of two paragraphs."""
    return Path(shutil.copytree(Path(__file__).parents[1] / "fixtures/text", tmp_path_factory.mktemp("text") / "text"))


@pytest.fixture
def tiny_recipe(bert_folder, text_folder, tmp_path) -> dict:
    """A recipe that runs in a second or two; tests change what they are about."""
    return recipe_of(bert_folder, text_folder, output=str(tmp_path / "run"))
