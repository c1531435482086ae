"""Registries that forget what a test adds."""

from __future__ import annotations

import pytest

from limbeck.core import registry as plugins
from limbeck.methods import METHODS
from limbeck.objectives import OBJECTIVES


@pytest.fixture(autouse=True)
def forgotten_afterwards(monkeypatch):
    """Whatever a test adds is gone after it."""
    monkeypatch.setenv(plugins.VARIABLE, "")  # So that what a test leaves there goes with it.
    monkeypatch.delenv(plugins.VARIABLE)
    monkeypatch.setattr(plugins, "_files", {})
    monkeypatch.setattr(plugins, "_distributions", {})
    for registry in (METHODS, OBJECTIVES):
        len(registry)
        monkeypatch.setattr(registry, "_items", dict(registry._items))
        monkeypatch.setattr(registry, "_outside", set(registry._outside))
