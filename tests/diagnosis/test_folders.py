"""The folders: where, how large, writable, with room."""

from collections import namedtuple

import pytest
from huggingface_hub import constants

from limbeck.core.files import MANIFEST
from limbeck.diagnosis import checks
from limbeck.diagnosis.checks import find_cache, find_folder, find_folders, find_hub

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def _room(monkeypatch):
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: Usage(10**12, 0, 5 * 10**9))


def test_a_cache_with_its_size(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))
    folder = tmp_path / "blocks" / "one"
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_text("{}")
    with (folder / "data").open("wb") as file:
        file.truncate(3 * 10**8)
    found = find_cache()
    assert found.status == "ok"
    assert found.facts["bytes"] == 3 * 10**8 + 2 and found.facts["finished"] == 1
    assert str(tmp_path) in found.text and "5.0 GB free; 0.3 GB in 1 finished" in found.text
    assert found.facts["from_environment"] is True


def test_a_cache_that_is_not_there_yet_is_well_and_is_not_made(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "a" / "b"))
    found = find_cache()
    assert found.status == "ok" and "made when it is needed" in found.text
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").write_text("in the way")
    found = find_cache()
    assert found.status == "failed" and "LIMBECK_CACHE" in found.way_out


def test_little_room_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: Usage(10**12, 0, 10**9))
    found = find_folder("x", tmp_path, "")
    assert found.status == "warning" and "1.0 GB free" in found.text


def test_a_hub_folder_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    found = find_hub()
    assert found.status == "warning" and "HF_HOME" in found.way_out
    assert found.facts["offline"] is False and "nothing is fetched" not in found.text
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_hub().facts["offline"] is True and "offline: nothing is fetched" in find_hub().text


def test_the_whole_part():
    assert [found.name for found in find_folders()] == ["corpus cache", "Hugging Face home", "temporary files"]
