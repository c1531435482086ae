"""Files of weights have the mode that the user's umask gives, as all others."""

import os
import stat

import pytest

from limbeck.core import files
from limbeck.export.exporting import ExportRequest, export_model
from limbeck.training.checkpoints import save_weights
from tests.support.models import make_teacher, tiny_model
from tests.support.students import sentence_student


@pytest.fixture(params=[0o022, 0o077, 0o002], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("told", [True, False], ids=["told", "asked"])
def test_weights_of_stages_and_exports_have_the_umasks_mode(tmp_path, umask, told, monkeypatch):
    if not told:
        monkeypatch.setattr(files, "_STATUS", tmp_path / "no-such-system")
    save_weights(tiny_model("bert"), tmp_path / "model.safetensors.partial", None)
    assert mode(tmp_path / "model.safetensors.partial") == 0o666 & ~umask
    source = make_teacher(tmp_path, "bert", layers=1)
    done = export_model(ExportRequest(str(source), "safetensors", output=tmp_path / "out"))
    assert {mode(done.folder / name) for name in done.files} == {0o666 & ~umask}
    assert os.umask(umask) == umask, "it is left as it was"


def test_all_files_of_a_sentence_transformers_export_can_be_read_alike(tmp_path):
    request = ExportRequest(str(sentence_student(tmp_path)), "sentence-transformers", output=tmp_path / "out")
    done = export_model(request)
    assert len({mode(done.folder / name) for name in done.files}) == 1


def test_a_file_that_is_gone_or_not_ours_stops_nothing(tmp_path):
    files.give_ordinary_mode([tmp_path / "gone"])
