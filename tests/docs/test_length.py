"""Pages are short, and begin with what one can do after them and an example of it."""

import re

import pytest

from tests.docs.pages import MADE_BELOW, PAGES, ROOT

#: Words as `wc -w` counts them, so that every cell of a table costs some. Not counted: cards, and what is made of code.
MOST_WORDS = 28_000
MOST_LINES_OF_THE_README = 120
#: Pages of another form: the contributors' table, cards, and what is looked up by name.
OTHERS = ("CONTRIBUTING.md", "docs/methods/", "docs/reference/", "docs/recipe_reference.md", "docs/examples.md")
WRITTEN = [page for page in PAGES if not page.path.startswith(OTHERS)]


def text_of(page):
    return MADE_BELOW.split((ROOT / page.path).read_text(encoding="utf-8"))[0]


def test_pages_are_short():
    words = {page.path: len(text_of(page).split()) for page in WRITTEN}
    longest = sorted(words, key=words.__getitem__, reverse=True)[:5]
    assert sum(words.values()) <= MOST_WORDS, f"say each fact once and link to it; the longest are {longest}"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= MOST_LINES_OF_THE_README


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.path != "README.md"], ids=lambda page: page.path)
def test_a_page_begins_with_what_one_can_do_after_it_and_an_example(page):
    head, fence, _ = text_of(page).partition("```")
    assert re.search(r"\bAfter this page you (can|have|know)\b", " ".join(head.split())), page.path
    assert fence and "\n## " not in head, f"{page.path}: an example before the first section"
