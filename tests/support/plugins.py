"""The plugin that the documentation shows, and registries that forget the additions of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from limbeck.core import kinds as kind_facts
from limbeck.core import plugins
from limbeck.evaluation.evaluators.evaluator import EVALUATORS
from limbeck.export.formats import FORMATS
from limbeck.kinds.registry import KINDS
from limbeck.methods import METHODS, TEACHINGS
from limbeck.models.start import STARTS
from limbeck.objectives import OBJECTIVES
from limbeck.report import page as page  # Registers limbeck's sections.
from limbeck.report import sections
from tests.docs.pages import Page

PAGE = Page("docs/extending.md")


def _code(file: str) -> str:
    """Return the code of a file of the page, which may be in several blocks."""
    return "\n".join(block.text for block in PAGE.blocks if (block.title or "").startswith(file))


#: Its plugin, an objective and a method under decorators.
PAGE_CODE = _code("my_method.py")
#: Its other parts: a kind of task, an evaluator, a step of a start and a format.
PAGE_PARTS = _code("my_parts.py")


@contextmanager
def forgetting() -> Iterator[None]:
    """Have the registries forget at the end the additions made meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(plugins.VARIABLE, "")  # So that what a test leaves there goes with it.
        patch.delenv(plugins.VARIABLE)
        patch.setattr(plugins, "_files", {})
        patch.setattr(plugins, "_distributions", {})
        patch.setattr(kind_facts.KINDS, "_rows", dict(kind_facts.KINDS._rows))
        patch.setattr(sections, "_SECTIONS", {kind: dict(own) for kind, own in sections._SECTIONS.items()})
        for registry in (METHODS, OBJECTIVES, EVALUATORS, KINDS, TEACHINGS, STARTS, FORMATS):
            len(registry)
            patch.setattr(registry, "_items", dict(registry._items))
            patch.setattr(registry, "_plugin_names", set(registry._plugin_names))
        yield


@pytest.fixture(autouse=True)
def forgotten_afterwards():
    """Whatever a test adds is gone after it."""
    with forgetting():
        yield
