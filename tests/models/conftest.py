"""A model folder that a test may damage, and the error of a refusal."""

import shutil
from pathlib import Path

import pytest

import tests.support.triton_mode  # noqa: F401 - before transformers
from limbeck.errors import ModelError
from tests.support import models as tiny


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    return tiny.make_teacher(tmp_path_factory.mktemp("models"), "bert", layers=2)


@pytest.fixture
def folder(saved, tmp_path):
    """A copy that a test may damage."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.fixture(scope="session")
def refused():
    """Expects a `ModelError` of one line that any terminal prints."""
    return lambda message: pytest.raises(ModelError, match=message)
