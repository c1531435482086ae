"""No network, no shared cache, and fixtures of a tiny run."""

import gc
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # Of processes that tests start, beside each other.

import accelerate
import pytest
import torch

# Triton reads it once, when it is first imported: without a GPU its kernels run in its interpreter.
os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")

from tests.golden.snapshot import UPDATE
from tests.support.commands import limbeck  # noqa: F401 - a fixture
from tests.support.models import make_teacher
from tests.support.recipes import recipe_of


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that rewrites the committed snapshots of tests/golden."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the snapshots of tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    """Hand ``--update-golden`` to the snapshots, also in the processes of pytest-xdist."""
    if config.getoption("--update-golden"):
        os.environ[UPDATE] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names that differ from process to process: several processes could not share the suite."""
    for item in items:
        if " at 0x" in item.name:
            raise pytest.UsageError(f"{item.nodeid} is named by an address: give its parameters ids")


def pytest_collection_finish() -> None:
    """Take what was imported out of the garbage collector, which every training calls: it would look at all of it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure() -> None:
    """Let the interpreter find it again as it ends."""
    gc.unfreeze()


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
    return Path(shutil.copytree(Path(__file__).parent / "fixtures/text", tmp_path_factory.mktemp("text") / "text"))


@pytest.fixture
def tiny_recipe(bert_folder, text_folder, tmp_path) -> dict:
    """A recipe that runs in a second or two; tests change what they are about."""
    return recipe_of(bert_folder, text_folder, output=str(tmp_path / "run"))
