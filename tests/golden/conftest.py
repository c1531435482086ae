"""Pages without the pictures beside them."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def no_pictures(monkeypatch):
    """Pictures are drawn, and written empty: their text is on the page."""
    save = Figure.savefig

    def save_empty(self, place, *arguments, **options):
        if isinstance(place, str | Path):
            Path(place).touch()
        else:
            save(self, place, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", save_empty)
