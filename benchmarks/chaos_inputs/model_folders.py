"""Folders that are said to hold a model: configurations, weights and tokenizers that lie, or run code."""

from __future__ import annotations

import json
import pickle
import struct
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.chaos_inputs import garbage
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import EQUAL, SILENT, Trial

from limbeck.api import validate
from limbeck.models.loading import load_config, load_model
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.tokenizers import load_tokenizer

WEIGHTS = "model.safetensors"


class _RunsCode:
    """Pickled, it writes a file when it is read."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def _config(random: Random, scene: Scene, folder: Path, what: str, content: str | bytes) -> Trial:
    """A model whose `config.json` is replaced, loaded as a recipe's teacher or as a model."""
    model = scene.copy_of(scene.teacher, folder)
    (model / "config.json").write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    recipe = garbage.put(scene.recipe(folder), "teacher.model", str(model))
    act = random.choice([partial(validate, recipe), partial(load_model, model)])
    return Trial(f"config.json {what}", act, (str(model), "config.json", "model_type"))


def _read_config(scene: Scene) -> dict[str, Any]:
    return dict(json.loads((scene.teacher / "config.json").read_text(encoding="utf-8")))


def config_that_is_no_json(random: Random, scene: Scene, folder: Path) -> Trial:
    good = (scene.teacher / "config.json").read_bytes()
    content = random.choice([
        b"", b" ", b"{", b"null", b"[]", b"3", b'"x"', b"{}", garbage.noise(random),
        good[: random.randrange(len(good) - 2)], b"\xff" + good,
        garbage.nested_json(random, 100_000).encode(), garbage.nested_json(random, 900).encode(),
        b"{'model_type': 'bert'}", good + good, b"\0" * 100, b"[" + good + b"]",
    ])  # fmt: skip
    return _config(random, scene, folder, repr(content[:30]), content)


def config_of_wrong_values(random: Random, scene: Scene, folder: Path) -> Trial:
    config = _read_config(scene)
    key = random.choice([
        "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size",
        "max_position_embeddings",
    ])  # fmt: skip
    config[key] = random.choice([
        0, -1, -4, "four", "", [], {}, [4], None, 1e308, float("nan"), float("inf"), garbage.HUGE, 10**9, 10**12, 2**31,
        2**63, 3.7, garbage.control_text(random), True,
    ])  # fmt: skip
    return _config(random, scene, folder, f"{key} {str(config[key])[:40]!r}", json.dumps(config))


def config_that_does_not_fit(random: Random, scene: Scene, folder: Path) -> Trial:
    """A configuration that is in order, of other weights than those beside it."""
    config = _read_config(scene)
    key, value = random.choice([
        ("num_hidden_layers", 5), ("hidden_size", 96), ("intermediate_size", 95), ("vocab_size", 131),
        ("vocab_size", 10),
        ("num_attention_heads", 5), ("num_attention_heads", 7), ("max_position_embeddings", 64), ("type_vocab_size", 5),
        ("num_hidden_layers", 200),
    ])  # fmt: skip
    config[key] = value
    model = scene.copy_of(scene.teacher, folder)
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return Trial(f"{key} {value}", partial(load_model, model), (str(model), "heads"))


def config_of_another_family(random: Random, scene: Scene, folder: Path) -> Trial:
    config = _read_config(scene)
    config["model_type"] = random.choice([
        garbage.word(random), "", None, 3, [], {}, "t5", "vit", "BERT", "bert ", "../bert",
        garbage.control_text(random),
        "whisper", "__class__", "clip", "auto", "timm_wrapper",
    ])  # fmt: skip
    if random.random() < 0.5:
        config["architectures"] = random.choice([[garbage.word(random)], 3, None, [None], "x", [[]]])
    return _config(random, scene, folder, f"model_type {config['model_type']!r}", json.dumps(config))


def remote_code(random: Random, scene: Scene, folder: Path) -> Trial:
    """A model that brings its own code; the code is never run."""
    config = _read_config(scene)
    name = garbage.word(random)
    config["model_type"] = random.choice([name, "nomic_bert_own"])
    config["auto_map"] = {
        key: f"{random.choice(['own', '../own', 'hub/own--own'])}.Own{key}" for key in ("AutoConfig", "AutoModel")
    }
    trial = _config(random, scene, folder, f"auto_map of {config['model_type']}", json.dumps(config))
    marker = folder.parent / "code-was-run"
    (folder / scene.teacher.name / "own.py").write_text(f"open({str(marker)!r}, 'w')\n", encoding="utf-8")
    return trial


def remote_code_of_a_known_family(random: Random, scene: Scene, folder: Path) -> Trial:
    """Of a family that is known the own code is left alone, and the model is that family's."""
    config = _read_config(scene)
    config["auto_map"] = {"AutoConfig": "own.Own", "AutoModel": "own.Own"}
    model = scene.copy_of(scene.teacher, folder)
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (model / "own.py").write_text(f"open({str(folder.parent / 'code-was-run')!r}, 'w')\n", encoding="utf-8")

    def same(found: Any) -> str:
        return EQUAL if type(found).__name__ == "BertModel" else SILENT

    return Trial("auto_map of bert", partial(load_model, model), accepted=same)


def pickled_weights(random: Random, scene: Scene, folder: Path) -> Trial:
    model = scene.copy_of(scene.teacher, folder)
    (model / WEIGHTS).unlink()
    name = random.choice(
        ["pytorch_model.bin", "model.pt", "weights.pth", "model.ckpt", WEIGHTS, "pytorch_model-00001-of-00002.bin"]
    )
    (model / name).write_bytes(pickle.dumps(_RunsCode(folder.parent / "code-was-run")))
    return Trial(f"a pickle as {name}", partial(load_model, model), (str(model),))


def damaged_weights(random: Random, scene: Scene, folder: Path) -> Trial:
    """Cut off, or with a header that is changed; a changed number in the middle is nobody's to know."""
    model = scene.copy_of(scene.teacher, folder)
    content = (model / WEIGHTS).read_bytes()
    header = 8 + struct.unpack("<Q", content[:8])[0]
    way = random.choice(["cut", "cut header", "longer", "noise", "empty", "header length", "zeros"])
    changed = {
        "cut": content[: random.randrange(header, len(content) - 1)],
        "cut header": content[: random.randrange(header)],
        "longer": content + garbage.noise(random),
        "noise": garbage.noise(random),
        "empty": b"",
        "header length": struct.pack("<Q", random.choice([0, 1, 2**63, 2**40, header, len(content)])) + content[8:],
        "zeros": bytes(len(content)),
    }[way]
    (model / WEIGHTS).write_bytes(changed)
    return Trial(f"weights: {way}", partial(load_model, model), (str(model),))


def weights_that_lie(random: Random, scene: Scene, folder: Path) -> Trial:
    """A header in order but for what it says of one tensor."""
    model = scene.copy_of(scene.teacher, folder)
    content = (model / WEIGHTS).read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:end])
    name = random.choice([name for name in header if name != "__metadata__"])
    way = random.choice(["shape", "offsets", "dtype", "name", "missing", "type", "huge", "nested"])
    if way == "shape":
        header[name]["shape"] = [*header[name]["shape"], 7]
    elif way == "offsets":
        header[name]["data_offsets"] = random.choice([[0, 2**60], [5, 3], [-1, 8], [2**60, 2**60 + 4], [0, 0]])
    elif way == "dtype":
        header[name]["dtype"] = random.choice(["F33", "I64", "", "BOOL", None])
    elif way == "name":
        header[garbage.word(random)] = header.pop(name)
    elif way == "missing":
        del header[name]
    elif way == "type":
        header[name] = random.choice([[], "x", None, 3])
    elif way == "huge":
        header[name]["shape"] = [2**62, 2**62]
    else:
        header["__metadata__"] = {"a": {"b": []}}
    written = json.dumps(header).encode()
    (model / WEIGHTS).write_bytes(struct.pack("<Q", len(written)) + written + content[end:])
    return Trial(f"weights: {way} of {name}", partial(load_model, model), (str(model),))


def index_that_lies(random: Random, scene: Scene, folder: Path) -> Trial:
    """Weights in several files, by an index that names others."""
    model = scene.copy_of(scene.teacher, folder)
    target = random.choice(
        ["../../outside.safetensors", "/etc/passwd", "gone.safetensors", "", ".", "..", "a\0b", "config.json"]
    )
    if target.startswith(".."):
        (model / WEIGHTS).rename(folder / "kept.safetensors")
        target = "../kept.safetensors"
    else:
        (model / WEIGHTS).unlink()
    index: Any = random.choice([
        {"metadata": {}, "weight_map": {"embeddings.word_embeddings.weight": target}}, {"weight_map": {"a": target}},
        {"weight_map": {"a": target}}, {"weight_map": [target]}, {"weight_map": {"a": 3}}, {"weight_map": {}}, {}, [],
        {"weight_map": {"a": [target]}}, None, {"weight_map": None},
    ])  # fmt: skip
    (model / f"{WEIGHTS}.index.json").write_text(json.dumps(index), encoding="utf-8")
    return Trial(f"index {str(index)[:70]}", partial(load_model, model), (str(model),))


def folder_of_modules(random: Random, scene: Scene, folder: Path) -> Trial:
    """A sentence-transformers folder whose modules are elsewhere, or none."""
    outside = scene.copy_of(scene.teacher, folder)
    model = folder / "model"
    model.mkdir()
    path = random.choice([
        f"../{outside.name}", str(outside), "..", "a/../../" + outside.name, "gone", garbage.control_text(random),
        "a\0b", 3, {}, [], None, "x" * 5000,
    ])  # fmt: skip
    modules = random.choice([[{"path": path, "type": "sentence_transformers.models.Transformer"}], [{"path": path}],
        {}, 3,
                             [path], [[path]], None])  # fmt: skip
    (model / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    return Trial(f"modules.json {str(modules)[:60]}", partial(load_config, model), (str(model),))


def pooling_that_is_none(random: Random, scene: Scene, folder: Path) -> Trial:
    model = scene.copy_of(scene.teacher, folder)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.json").write_text('{"pooling_mode": "mean"}')
    path = random.choice(["../elsewhere", str(elsewhere), "1_Pooling", "1_Pooling", "1_Pooling", "gone", 3, "a\0b"])
    (model / "modules.json").write_text(json.dumps([
        {"path": "", "type": "x.Transformer"}, {"path": path, "type": "sentence_transformers.models.Pooling"},
    ]))  # fmt: skip
    (model / "1_Pooling").mkdir()
    config = random.choice([
        {}, [], {"pooling_mode": "max"}, {"pooling_mode": 3},
        {"pooling_mode_mean_tokens": 1, "pooling_mode_max_tokens": 1},
        {"pooling_mode": None}, None, {"pooling_mode": ["mean"]}, {"pooling_mode": garbage.control_text(random)},
    ])  # fmt: skip
    content = random.choice([json.dumps(config), "{", "\0", garbage.nested_json(random, 50_000)])
    (model / "1_Pooling" / "config.json").write_text(content)
    return Trial(f"pooling {path!r}: {content[:40]}", partial(sentence_pooling, model), (str(model), "ooling"))


def longest_input(random: Random, scene: Scene, folder: Path) -> Trial:
    model = scene.copy_of(scene.teacher, folder)
    (model / "modules.json").write_text(json.dumps([{"path": "1_Pooling", "type": "x.Pooling"}]))
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    length = random.choice(["many", [], {}, -1, 0, 1e308, float("nan"), float("inf"), "", garbage.HUGE, [128], "0x"])
    (model / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
    return Trial(f"max_seq_length {length!r}", partial(sentence_pooling, model), ("max_seq_length", str(model)))


def tokenizer_that_is_none(random: Random, scene: Scene, folder: Path) -> Trial:
    model = scene.copy_of(scene.teacher, folder)
    good = (model / "tokenizer.json").read_bytes()
    way = random.choice(["missing", "content", "content", "content", "config", "folder", "pickle"])
    if way == "missing":
        for name in ("tokenizer.json", "vocab.txt"):
            (model / name).unlink(missing_ok=True)
    elif way == "folder":
        (model / "tokenizer.json").unlink()
        (model / "tokenizer.json").mkdir()
    elif way == "pickle":
        (model / "tokenizer.json").write_bytes(pickle.dumps(_RunsCode(folder.parent / "code-was-run")))
    elif way == "config":
        (model / "tokenizer_config.json").write_text(
            random.choice(["{", "[]", "3", "\0", '{"tokenizer_class": 3}', '{"tokenizer_class": []}'])
        )
    else:
        (model / "tokenizer.json").write_bytes(random.choice([
            b"", b"{}", b"[]", b"null", b"{", garbage.noise(random), good[: random.randrange(len(good) - 5)],
            b"\xff" + good,
            garbage.nested_json(random, 5000).encode(), b'{"version": "1.0", "model": {"type": "x"}}',
            good.replace(b'"WordPiece"', b'"Wordless"'),
        ]))  # fmt: skip
    return Trial(f"tokenizer: {way}", partial(load_tokenizer, model), (str(model),))


def no_model_at_all(random: Random, scene: Scene, folder: Path) -> Trial:
    good = folder / "nothing"
    good.mkdir()
    (folder / "file.txt").write_text("text")
    (good / "readme.txt").write_text("text")
    name: str | Path = random.choice([
        good, good / "gone", folder / "file.txt", "", " ", ".", "..", "/", "/dev/null", "a/b/c", "-x", "a b", "a\0b",
        "~no-such-user/y", garbage.control_text(random), garbage.markup_text(random), "x" * 5000, "package:",
        "package:..", "package:os", f"package:{garbage.word(random)}", "package:a.b", "package:\0",
        f"owner/{garbage.word(random)}",
        "hub:x/y", "../..",
    ])  # fmt: skip
    load = random.choice([load_config, load_model, load_tokenizer])
    return Trial(f"{load.__name__} of {str(name)[:40]!r}", partial(load, name))


MAKERS = {
    maker.__name__: maker
    for maker in (
        config_that_is_no_json, config_of_wrong_values, config_that_does_not_fit, config_of_another_family, remote_code,
        remote_code_of_a_known_family, pickled_weights, damaged_weights, weights_that_lie, index_that_lies,
        folder_of_modules, pooling_that_is_none, longest_input, tokenizer_that_is_none, no_model_at_all,
    )
}  # fmt: skip
