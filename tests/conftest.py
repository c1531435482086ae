"""No network; the fixtures of all tests, where tests run."""

import gc
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # Of processes that tests start, beside each other.

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.golden.snapshot import UPDATE

# How long an example takes says something about the machine alone, which other tests share.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that rewrites the committed snapshots of tests/golden."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the snapshots of tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    """Hand ``--update-golden`` to the snapshots, also in the processes of pytest-xdist; load the fixtures in these."""
    # Speedups of a busy machine are left out, and other tests keep it busy.
    processor_times = psutil.cpu_times()
    psutil.cpu_times = lambda: processor_times
    if config.getoption("--update-golden"):
        os.environ[UPDATE] = "1"
    if config.getoption("dist", "no") == "no":  # The process that spreads the tests needs no torch.
        config.pluginmanager.import_plugin("tests.support.fixtures")


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
