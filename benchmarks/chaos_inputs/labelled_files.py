"""Labelled files, and the YAML of own tasks: every row is read as meant, or the file is refused."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import yaml
from benchmarks.chaos_inputs import garbage
from benchmarks.chaos_inputs.scene import WORDS, Scene
from benchmarks.chaos_inputs.trial import COUNTED, SILENT, Trial

from limbeck.corpus import LabelledSettings, build_labelled_corpus
from limbeck.evaluation.plan.planner import Planner
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.tasks.loading import load_task
from limbeck.evaluation.tasks.registry import parse_tasks
from limbeck.kinds.registry import KINDS


def _rows(random: Random, count: int = 12) -> list[dict[str, Any]]:
    return [
        {"text": " ".join(random.choices(WORDS, k=6)) + f" {n}", "label": random.choice(["no", "yes"])}
        for n in range(count)
    ]


def _counted(corpus: Any) -> str:
    lines = corpus.report.lines()
    return COUNTED if lines and all(line.isprintable() for line in lines) else SILENT


def _corpus(scene: Scene, folder: Path, what: str, name: str, content: bytes, kind: Any = "classification") -> Trial:
    """Rows to distil on."""
    path = folder / name
    path.write_bytes(content)
    labels = ("no", "yes") if kind == "classification" else ()
    stride = {"stride": 4} if kind == "question_answering" else {}
    settings = LabelledSettings(kind=kind, sources=str(path), length=24, labels=labels, **stride)
    act = partial(
        build_labelled_corpus, settings, scene.tokenizer, KINDS[settings.kind], cache_dir=folder / "cache", workers=1
    )
    return Trial(f"{kind} {name}: {what}", act, (name,), _counted)


def _lines(rows: list[Any]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def label_that_is_none(random: Random, scene: Scene, folder: Path) -> Trial:
    rows = _rows(random)
    rows[random.randrange(12)]["label"] = random.choice([
        "maybe", "", None, -1, 2, 99, 1.5, [], {}, [0], float("nan"), float("inf"), garbage.HUGE, "yes please", "-",
        garbage.control_text(random), "½", {"label": 1}, "x" * 100_000, -0.5, 10**400,
    ])  # fmt: skip
    return _corpus(scene, folder, "a label that is none", random.choice(["a.jsonl", "a.json"]), _lines(rows))


def value_that_is_none(random: Random, scene: Scene, folder: Path) -> Trial:
    rows: list[Any] = [{**row, "label": random.random()} for row in _rows(random)]
    rows[random.randrange(12)]["label"] = random.choice([
        "high", "", None, [], {}, float("nan"), float("inf"), -float("inf"), True, "1,5", "nan", "1e999", 10**400,
        [1.0], "½x",
    ])  # fmt: skip
    return _corpus(scene, folder, "a value that is none", "a.jsonl", _lines(rows), "regression")


def answer_that_is_none(random: Random, scene: Scene, folder: Path) -> Trial:
    good = [
        {"question": f"what is {n}", "context": f"the student {n} is small",
         "answers": {"text": ["student"], "answer_start": [4]}}
        for n in range(8)
    ]  # fmt: skip
    rows: list[Any] = [*good]
    rows[random.randrange(8)] = {**good[0], "answers": random.choice([
        3, "student", [1], {"text": ["student"]}, {"text": "student", "answer_start": [4]},
        {"text": ["student"], "answer_start": ["x"]},
        {"text": ["student"], "answer_start": [4, 5]}, {"text": [None], "answer_start": [4]},
        {"text": [3], "answer_start": [4]},
        {"text": ["student"], "answer_start": [None]}, {"text": ["student"], "answer_start": [10**30]},
        {"text": ["student"], "answer_start": [-1]}, {"text": ["teacher"], "answer_start": [4]}, None, [{"text": "x"}],
        {"text": ["student"], "answer_start": [float("nan")]}, {"text": ["student"], "answer_start": [float("inf")]},
        {"text": ["student"], "answer_start": [4.7]},
    ])}  # fmt: skip
    return _corpus(scene, folder, f"answers {str(rows)[:1]}", "a.jsonl", _lines(rows), "question_answering")


def text_that_is_none(random: Random, scene: Scene, folder: Path) -> Trial:
    rows = _rows(random)
    bad: Any = random.choice([3, None, "", " ", [], {}, True, [1], "\0", "\ud800", 1e308])
    rows[random.randrange(12)]["text"] = bad
    return _corpus(scene, folder, f"text {bad!r}", "a.jsonl", _lines(rows))


def row_that_is_none(random: Random, scene: Scene, folder: Path) -> Trial:
    lines = [json.dumps(row) for row in _rows(random)]
    bad = random.choice([
        "{", "[]", "3", "null", '{"text": "a"}', '{"label": "no"}', "{}", garbage.nested_json(random, 100_000), "\x00",
        "x",
        '{"paragraphs": 3}', '{"paragraphs": [{}]}', '{"paragraphs": [{"context": "x", "qas": [3]}]}',
        '{"paragraphs": [{"context": "x", "qas": {}}]}', '{"paragraphs": [{"context": 3, "qas": [{"id": 1}]}]}',
    ])  # fmt: skip
    lines.insert(random.randrange(12), bad)
    return _corpus(scene, folder, f"row {bad[:30]!r}", "a.jsonl", "\n".join(lines).encode())


def table_that_is_none(random: Random, scene: Scene, folder: Path) -> Trial:
    ending, tab = random.choice([(".csv", ","), (".tsv", "\t"), (".txt", "\t")])
    lines = [tab.join(["text", "label"]), *(tab.join(row.values()) for row in _rows(random))]
    at = random.randrange(1, len(lines))
    way = random.choice(
        ["no header", "twice", "fields", "quote", "bytes", "label", "empty", "blank", "one column", "nul"]
    )
    if way == "no header":
        del lines[0]
    elif way == "twice":
        lines[0] = tab.join(["text", "text"])
    elif way == "fields":
        lines[at] += tab + "more"
    elif way == "quote":
        lines[at] = '"' + lines[at].replace(tab, f'" x"{tab}')
    elif way == "label":
        lines[at] = f"text{tab}{garbage.word(random)}"
    elif way == "empty":
        lines = []
    elif way == "blank":
        lines = [""] * 9
    elif way == "one column":
        lines = [line.split(tab)[0] for line in lines]
    elif way == "nul":
        lines[at] = f"a\0b{tab}no"
    content = "\n".join(lines).encode()
    if way == "bytes":
        content = content.replace(b"student", b"stud\xffent") + b"\n\xff" + tab.encode() + b"no"
    return _corpus(scene, folder, way, f"a{ending}", content)


def file_that_is_none(random: Random, scene: Scene, folder: Path) -> Trial:
    good = _lines(_rows(random))
    packed = gzip.compress(good)
    name, content = random.choice([
        ("a.json", b""), ("a.json", b"{"), ("a.json", garbage.nested_json(random, 100_000).encode()),
        ("a.json", b"[1, 2]"),
        ("a.json", b'{"data": [3]}'), ("a.json", b'{"data": {}}'), ("a.parquet", garbage.noise(random)),
        ("a.parquet", good),
        ("a.jsonl.gz", packed[: random.randrange(len(packed) - 1)]), ("a.csv", garbage.noise(random, 50)),
        ("a.pdf", good),
        ("a.jsonl", garbage.noise(random, 50)), ("a.jsonl.zst", good), ("a.json.gz", gzip.compress(b"")), ("a", good),
        ("a.tsv", bytes(400)), ("a.csv", b'"' + b"x" * 200_000), ("a.jsonl", b"\xef\xbb\xbf"), ("a.json", b"9" * 5000),
    ])  # fmt: skip
    return _corpus(scene, folder, repr(content[:16]), name, content)


def _task(random: Random, folder: Path, **changes: Any) -> dict[str, Any]:
    rows = _lines(_rows(random))
    for split in ("train", "dev"):
        (folder / f"{split}.jsonl").write_bytes(rows)
    return {
        "name": "mine", "type": "classification", "labels": ["no", "yes"],
        "columns": {"text": "text", "label": "label"},
        "files": {"train": "train.jsonl", "validation": "dev.jsonl"}, **changes,
    }  # fmt: skip


def _load(path: Path) -> Any:
    """As `limbeck evaluate --tasks PATH` does before any work."""
    names = parse_tasks(str(path))
    Planner(EvaluationRequest(("model",), str(path), path.parent / "out")).plan(names[0])
    return load_task(names[0], data=None)


def own_task_values(random: Random, scene: Scene, folder: Path) -> Trial:
    key, values = random.choice([
        ("name", ["", " ", "../x", "a/b", "sst2", ".", 3, None, "a\n", garbage.control_text(random), "x" * 300, "-a",
        []]),
        ("type", ["", "regresion", 3, None, [], "CLASSIFICATION", garbage.word(random)]),
        ("labels", [[], ["no"], ["no", "no"], "no,yes", 3, [None, "x"], [True, False], {"a": 1}, [["a"], "b"], [1.5,
        2], ["", " "]]),
        ("columns", [[], {}, {"text": 3}, {"txt": "x"}, {"text": "gone"}, {"text": ""}, {"label": "label"}, "text",
                     {"text": "text", "label": "gone"}, {"text": "text", "label": []}]),
        ("metric", ["acuracy", 3, [], [3], {}, "f1_answer", "", "f1", garbage.word(random)]),
        ("positive", ["gone", 3, 1.5, True, [], {}, "", garbage.word(random)]),
        ("train", ["trian", "", 3, "sst2:gone", "gone:train", ":", "a:b:c", None]),
        ("select", [3, [], {}]),
        ("unlabelled", ["train", ["gone"], ["train"], 3, [3], "validation"]),
        ("no_answers", ["x", [], 3.5]),
        ("hub", [{"name": "x/y", "split": {"train": "train"}}, 3, {}, []]),
        ("title", [3, [], {}, garbage.control_text(random), "", "x" * 100_000]),
        ("language", [3, [], None]),
        (garbage.word(random), [1, None]),
    ])  # fmt: skip
    value = random.choice(values)
    if key in ("metric", "unlabelled") and value == []:
        value = 3
    path = folder / "task.yaml"
    path.write_text(yaml.safe_dump(_task(random, folder, **{key: value})), encoding="utf-8")
    return Trial(f"{key} {str(value)[:40]!r}", partial(_load, path), (str(path), key, "column"))


def own_task_files(random: Random, scene: Scene, folder: Path) -> Trial:
    """Files and splits of own tasks that lie elsewhere, or are none."""
    outside = folder.parent / "outside.jsonl"
    task = _task(random, folder)
    (folder / "secret").mkdir()
    kept = folder / "secret" / "rows.jsonl"
    kept.write_bytes(_lines(_rows(random)))
    here = folder / "task"
    here.mkdir()
    for split in ("train", "dev"):
        (folder / f"{split}.jsonl").rename(here / f"{split}.jsonl")
    task["files"] = random.choice([
        {"train": "train.jsonl", "validation": "../secret/rows.jsonl"},
        {"train": "train.jsonl", "validation": str(kept)},
        {"train": "../../../../etc/passwd", "validation": "dev.jsonl"},
        {"train": "train.jsonl", "validation": "gone.jsonl"},
        {"train": "gone.jsonl", "validation": "gone.jsonl"}, {"train": "train.jsonl", "../../x": "dev.jsonl"},
        {"train": "train.jsonl", "a/b": "dev.jsonl"}, {"train": "train.jsonl", "": "dev.jsonl"}, {}, {"train": 3}, [],
        "dev.jsonl",
        {"train": "", "validation": ""}, {"train": ".", "validation": "."},
        {"train": "a\0b", "validation": "dev.jsonl"},
        {"train": "train.pdf", "validation": "dev.jsonl"}, {"train": "x" * 5000, "validation": "dev.jsonl"},
        {"train": "train.jsonl", "validation": f"../{outside.name}"}, {"train": ["train.jsonl"]}, {3: "train.jsonl"},
        {"train": "train.jsonl", "a\nb": "dev.jsonl"}, {"train": "/dev/zero", "validation": "dev.jsonl"},
    ])  # fmt: skip
    if task["files"] and "gone.jsonl" in list(task["files"])[-1:]:
        task["select"] = "validation"
    path = here / "task.yaml"
    path.write_text(yaml.safe_dump(task), encoding="utf-8")

    def noted(data: Any) -> str:
        return COUNTED if any("not there" in note for note in data.notes) else SILENT

    return Trial(f"files {str(task['files'])[:60]}", partial(_load, path), (str(path), "files", str(here)), noted)


def own_task_rows(random: Random, scene: Scene, folder: Path) -> Trial:
    """A task is scored on all rows or none: damage is refused, never passed over."""
    task = _task(random, folder)
    good = (folder / "dev.jsonl").read_bytes()
    lines = good.split(b"\n")
    bad = random.choice([
        b"{", b"[]", b"3", b"\xff", b"", b'{"text": "a"}', b'{"label": "no"}', b'{"text": "a", "label": "maybe"}',
        b'{"text": 3, "label": "no"}', b'{"text": "a", "label": null}', b'{"text": "a", "label": -1}',
        b'{"text": {}, "label": 0}',
        b'{"text": "a", "label": [0]}', b"\0" * 40, garbage.nested_json(random, 50_000).encode(),
        b'{"text": null, "label": 1, "x": ',
    ])  # fmt: skip
    lines.insert(random.randrange(len(lines)), bad or b"{]")
    (folder / "dev.jsonl").write_bytes(b"\n".join(lines))
    path = folder / "task.yaml"
    path.write_text(yaml.safe_dump(task), encoding="utf-8")
    return Trial(f"row {bad[:30]!r}", partial(_load, path), ("dev.jsonl",))


def own_task_document(random: Random, scene: Scene, folder: Path) -> Trial:
    path = folder / "task.yaml"
    good = yaml.safe_dump(_task(random, folder))
    content: Any = random.choice([
        "", "3", "[]", "- a", "a: [", "{", "!!python/name:os.system", "name: !!python/object/apply:os.getpid []",
        "&a [*a]",
        good + "\nname: twice\n", good + "\nlabels: [a, b]\n", "a: " + "[" * 5000, "\x00", "name: &a [*a]",
        "x: &a [1,1,1,1,1,1,1,1,1]\ny: &b [*a,*a,*a,*a,*a,*a]\nz: &c [*b,*b,*b,*b,*b,*b,*b]\n"
        "name: &d [*c,*c,*c,*c,*c,*c,*c]\ntype: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]", good.replace("type", "tpye"),
        "name: 2020-13-01",
    ])  # fmt: skip
    data = content.encode() if random.random() < 0.8 else b"\xff\xfe" + content.encode()
    path.write_bytes(data)
    return Trial(f"task.yaml {data[:40]!r}", partial(_load, path), (str(path),))


def names_of_tasks(random: Random, scene: Scene, folder: Path) -> Trial:
    text = random.choice([
        "", " ", ",", "ss2", "sst2,,gleu", garbage.word(random), "../x.yaml", f"/{garbage.word(random)}.yaml",
        "a\0b.yaml",
        garbage.control_text(random), garbage.markup_text(random), "x" * 100_000, "~no-such-user/x.yaml", "glue;qa",
        ".yaml", "/.yml",
        f"{folder}/.yaml", "x" * 5000 + ".yaml",
    ])  # fmt: skip
    request = EvaluationRequest(("model",), text, folder / "out")
    return Trial(f"--tasks {text[:40]!r}", partial(Planner, request))


MAKERS = {
    maker.__name__: maker
    for maker in (
        label_that_is_none, value_that_is_none, answer_that_is_none, text_that_is_none, row_that_is_none,
        table_that_is_none,
        file_that_is_none, own_task_values, own_task_files, own_task_rows, own_task_document, names_of_tasks,
    )
}  # fmt: skip
