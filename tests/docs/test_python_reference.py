"""The Python reference in the repository is what `make references` writes: every public name with its docstring."""

import pytest

import limbeck
from limbeck import objectives
from tests.docs.pages import ROOT, script

pytest.importorskip("griffe", reason="the reference is made with the extra `docs`")
MADE = script("docs/hooks/python_reference.py")


@pytest.mark.parametrize("page", MADE.pages(), ids=lambda page: page.name)
def test_the_page_is_what_is_made_now(page):
    text = page.read_text(encoding="utf-8")
    assert MADE.with_reference(text) == text, "run make references"


def test_every_page_of_the_folder_is_made():
    pages = {path.name for path in MADE.pages()}
    files = {path.name for path in (ROOT / "docs/reference").glob("*.md")}
    assert pages == files - {"README.md", "files.md", "tasks.md"}


@pytest.mark.parametrize(("page", "module"), [("python", limbeck), ("objectives", objectives)])
def test_every_public_name_has_its_heading(page, module):
    text = (ROOT / f"docs/reference/{page}.md").read_text(encoding="utf-8")
    names = [name for name in module.__all__ if not name.startswith("__") and name != "OBJECTIVES"]
    assert [name for name in names if f"\n### {name}\n" not in text] == []


def test_a_function_has_its_signature_arguments_and_errors():
    text = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    validate = text[text.index("### validate") :]
    assert "def validate(" in validate and "-> RunPlan" in validate
    assert "- `RecipeError`: " in validate
    assert "\n- `preset`: " in text
