"""Links that leave docs/ lead to copies in the site, at the right depth."""

import pytest

from tests.docs.pages import script

pytest.importorskip("mkdocs", reason="the site is built with the extra `docs`")
HOOK = script("docs/hooks/repository_files.py")


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
def test_links_are_turned(uri, target, turned):
    assert HOOK.turn_links(f"see [this]({target}).", uri) == f"see [this]({turned})."


def test_a_link_to_a_folder_becomes_its_text():
    assert HOOK.turn_links("in [results](../benchmarks/results)", "performance.md") == "in results"


def test_the_sources_of_pages():
    assert HOOK.source_of("recipes.md") == "recipes/README.md"
    assert HOOK.source_of("results/search.md") == "docs/results/search.md"
