"""Studies of a fitness that is known, and the generations that they are to have."""

import optuna
import pytest

optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture(params=["journal", "sqlite"])
def place(request, tmp_path):
    """A storage of each kind that needs no server."""
    return str(tmp_path / "search.journal") if request.param == "journal" else f"sqlite:///{tmp_path}/search.db"
