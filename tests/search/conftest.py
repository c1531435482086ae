"""Storages, and searches of one kind whose candidates cost nothing: `searched` of a module is its support module."""

import optuna
import pytest

from limbeck.search.storage import open_storage
from tests.support.corpora import write_text

optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture(params=["journal", "sqlite"])
def place(request, tmp_path):
    """A storage of each kind that needs no server."""
    return str(tmp_path / "search.journal") if request.param == "journal" else f"sqlite:///{tmp_path}/search.db"


@pytest.fixture(scope="module")
def kind(request):
    return getattr(request, "param", None) or request.module.searched


@pytest.fixture(scope="module")
def files(kind, tmp_path_factory):
    folder = tmp_path_factory.mktemp("searched")
    return kind.write_teacher(folder), write_text(folder / "text", 60)


@pytest.fixture
def recipe(kind, files):
    return kind.recipe_data(*files)


@pytest.fixture
def calls(kind, monkeypatch):
    return kind.install(monkeypatch)


@pytest.fixture
def study(kind, tmp_path):
    """Opens the study of the search in `out`."""
    return lambda: optuna.load_study(study_name=kind.NAME, storage=open_storage(tmp_path / "out" / "search.journal"))
