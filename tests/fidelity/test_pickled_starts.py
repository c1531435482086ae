"""Starts that were published as pickles: the way to the safetensors that limbeck reads (MLKD-BERT's TinyBERTs)."""

import json
import re

import pytest
import torch
from safetensors.torch import save_file
from transformers import BertForPreTraining, BertModel

from limbeck.core import pickles
from limbeck.errors import ModelError
from limbeck.export import ExportRequest, export_model, safe_copies
from limbeck.export.safe_copies import safe_copy
from limbeck.models.loaded import open_model
from limbeck.models.loading import load_model
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.recipe.model_plans import plan_teacher
from limbeck.recipe.models import TeacherSpec
from tests.support.models import save_folder, tiny_config


def test_a_start_of_pickles_is_copied_by_the_command_that_its_error_names(tmp_path):
    start = BertForPreTraining(tiny_config("bert", layers=2))
    folder = save_folder(start, tmp_path / "start", "bert")
    (folder / "model.safetensors").unlink()
    torch.save(start.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ModelError) as refused:
        load_model(folder)
    with pytest.raises(ModelError, match=f"limbeck export {folder} "):  # As a recipe with it is validated.
        plan_teacher(TeacherSpec(model=str(folder)))
    command = re.search("limbeck export (.*) --format (.*) (--read-pickled)", str(refused.value))
    assert command[1] == str(folder)
    done = export_model(ExportRequest(command[1], command[2], read_pickled=True))
    assert done.record["source"] == "start" and done.record["head"] == "masked_lm"
    found = load_model(done.folder, head="masked_lm")
    for name, tensor in start.state_dict().items():
        if not name.startswith(("cls.seq_relationship", "bert.pooler")):
            assert torch.equal(found.state_dict()[name], tensor), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["start", "start-safetensors"]
    with pytest.raises(ModelError, match="has weights as safetensors, so nothing pickled needs to be read"):
        export_model(ExportRequest(str(done.folder), "safetensors", read_pickled=True))
    assert BertModel.from_pretrained(done.folder)


def test_a_start_that_is_damaged_is_named_by_its_own_folder(tmp_path):
    start = BertModel(tiny_config("bert", layers=2))
    folder = save_folder(start, tmp_path / "start", "bert")
    (folder / "model.safetensors").unlink()
    state = start.state_dict()
    state["encoder.layer.1.output.dense.bias"].fill_(float("nan"))
    torch.save(state, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=f"The weights of '{folder}' are damaged") as refused:
        export_model(ExportRequest(str(folder), "safetensors", read_pickled=True))
    assert "safe-copy" not in str(refused.value)


@pytest.mark.parametrize("inside", ["", "0_Transformer"], ids=["flat", "nested"])
def test_a_copy_of_pickled_sentence_vectors_keeps_their_pooling(tmp_path, monkeypatch, inside):
    monkeypatch.setattr(safe_copies, "convert_pickles", pickles.convert)
    root, model = tmp_path / "start", BertModel(tiny_config("bert", layers=2))
    folder = save_folder(model, root / inside, "bert")
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    kinds = {"Transformer": inside, "Pooling": "1_Pooling", "Dense": "2_Dense"}
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds.items()]
    (root / "modules.json").write_text(json.dumps(modules))
    (root / "1_Pooling").mkdir()
    (root / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (root / "2_Dense").mkdir()
    width = model.config.hidden_size
    (root / "2_Dense" / "config.json").write_text(json.dumps({"in_features": width, "out_features": 3, "bias": False}))
    save_file({"linear.weight": torch.ones(3, width)}, root / "2_Dense" / "model.safetensors")
    (root / "config_sentence_transformers.json").write_text('{"prompts": {"query": "q: "}}')
    with safe_copy(str(root), tmp_path / "copy") as copy:
        found, wanted = open_model(copy).sentence, sentence_pooling(root)
        assert (
            (str(found), dict(found.prompts))
            == (str(wanted), {"query": "q: "})
            == ("cls + Dense 48 → 3", wanted.prompts)
        )
        assert SentenceHead(found).width(width) == 3
    # Of a Hub name the Transformer alone is copied.
    monkeypatch.setattr(safe_copies, "is_local", lambda resolved: False)
    with safe_copy(str(folder), tmp_path / "copy") as copy:
        assert sentence_pooling(copy) is None
