"""Links between pages, files and headings lead somewhere; every page is in the site's menu."""

import re

import pytest
import yaml

from tests.docs.pages import LINKED_PAGES, PAGES, ROOT, Page

every_page = pytest.mark.parametrize("page", LINKED_PAGES, ids=lambda page: page.path)


@every_page
def test_links_lead_somewhere(page):
    wrong = [target for target in page.links if not leads_somewhere(page, target)]
    assert not wrong, f"{page.path}: {wrong}"


def leads_somewhere(page, target):
    path, _, anchor = target.partition("#")
    place = ((ROOT / page.path).parent / path).resolve() if path else ROOT / page.path
    if not place.exists() or not place.is_relative_to(ROOT):
        return False
    return not anchor or (place.suffix == ".md" and anchor in Page(place.relative_to(ROOT).as_posix()).anchors)


def test_links_that_lead_nowhere_are_seen(tmp_path, monkeypatch):
    page = Page("docs/index.md")
    assert leads_somewhere(page, "start.md#your-own-text-your-own-teacher")
    assert not leads_somewhere(page, "start.md#no-such-heading")
    assert not leads_somewhere(page, "nothing.md")
    assert not leads_somewhere(page, "../../beside-the-repository.md")


@every_page
def test_pictures_are_described(page):
    assert all(len(text) > 20 for text, _ in page.picture_texts), page.path


def menu(items):
    for item in items:
        for value in item.values() if isinstance(item, dict) else [item]:
            yield from menu(value) if isinstance(value, list) else [value]


def test_every_page_is_in_the_menu():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    found = list(menu(yaml.safe_load(text)["nav"]))
    docs = {page.path.removeprefix("docs/") for page in PAGES if page.path.startswith("docs/")}
    from_elsewhere = set(
        re.findall(r'"[\w/]+\.md": "([\w/]+\.md)"', (ROOT / "docs/hooks/repository_files.py").read_text())
    )
    assert len(found) == len(set(found))
    assert docs <= set(found) <= docs | from_elsewhere
