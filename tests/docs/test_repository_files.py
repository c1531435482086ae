"""Links that leave docs/ lead to copies in the site, at the right depth."""

import runpy
from types import SimpleNamespace

import pytest

from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def hook():
    pytest.importorskip("mkdocs", reason="the site is built with the extra `docs`")
    return SimpleNamespace(**runpy.run_path(str(ROOT / "docs/hooks/repository_files.py")))


@pytest.mark.parametrize(
    ("uri", "target", "turned"),
    [
        ("results/search.md", "../../benchmarks/results/model.json", "../repository/benchmarks/results/model.json"),
        ("faq.md", "../recipes/README.md#text", "recipes.md#text"),
        ("guides/choosing.md", "../methods/README.md#layer-mappings", "../methods/README.md#layer-mappings"),
        ("recipes.md", "../docs/comparison.md", "comparison.md"),
        ("recipes.md", "papers/elm-4x312-uniform.yaml", "repository/recipes/papers/elm-4x312-uniform.yaml"),
        ("start.md", "https://arxiv.org/abs/2012.15828", "https://arxiv.org/abs/2012.15828"),
    ],
)
def test_links_are_turned(hook, uri, target, turned):
    assert hook.turn_links(f"see [this]({target}).", uri) == f"see [this]({turned})."


def test_a_link_to_a_folder_becomes_its_text(hook):
    assert hook.turn_links("in [results](../benchmarks/results)", "performance.md") == "in results"


def test_the_sources_of_pages(hook):
    assert hook.source_of("recipes.md") == "recipes/README.md"
    assert hook.source_of("results/search.md") == "docs/results/search.md"
