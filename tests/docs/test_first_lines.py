"""Pages begin with what a reader can do after them, and with an example of it."""

import re

import pytest

from tests.docs.pages import MADE_BELOW, PAGES, ROOT

#: Pages of another form: the contributors' table, cards, and what is looked up by name.
OTHERS = ("CONTRIBUTING.md", "docs/methods/", "docs/reference/", "docs/recipe_reference.md", "docs/examples.md")
WRITTEN = [page for page in PAGES if not page.path.startswith(OTHERS) and page.path != "README.md"]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.path)
def test_a_page_begins_with_its_purpose_and_an_example(page):
    written = MADE_BELOW.split((ROOT / page.path).read_text(encoding="utf-8"))[0]
    head, fence, _ = written.partition("```")
    assert re.search(r"\bAfter this page you (can|have|know)\b", " ".join(head.split())), page.path
    assert fence and "\n## " not in head, f"{page.path}: an example before the first section"
