"""Bad data gives one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.task_files import load_task
from tests.support.task_files import CONTEXT, question, write_lines, write_squad, write_table

RTE = ("index", "sentence1", "sentence2", "label")


def refused(data: Path, name: str = "rte", split: str = "validation") -> str:
    with pytest.raises(CorpusError) as caught:
        load_task(name, data=data, splits=[split])
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_what_is_not_there(tmp_path: Path) -> None:
    assert refused(tmp_path) == (
        f"No file of the split 'validation' of RTE in '{tmp_path}' or a subfolder: looked for RTE/dev.tsv, "
        f"RTE/validation.tsv, rte/dev.tsv, rte/validation.tsv."
    )
    assert "The data folder" in refused(tmp_path / "gone")
    assert "RTE has no split 'dev'. Known: test, train, validation." in refused(tmp_path, split="dev")
    assert "Did you mean 'validation'?" in refused(tmp_path, split="validations")
    assert "MNLI has no split 'validation'" in refused(tmp_path, split="mnli:validation")
    assert "has no split 'train'" in refused(tmp_path, "stsb_cosine", "train")
    with pytest.raises(CorpusError, match=r"No file of the split 'train' of RTE"):
        load_task("rte", data=tmp_path)
    assert "None of the splits validation.ar, " in refused(tmp_path, "xnli")
    with pytest.raises(RecipeError, match=r"Unknown task 'sqad'\. Did you mean 'squad'\?"):
        load_task("sqad", data=tmp_path)


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "RTE/dev.tsv"
    write_table(path, ("index", "premise", "hypothesis", "label"), [(0, "a", "b", "entailment")])
    assert refused(tmp_path) == f"{path}:2 has no column 'sentence1'; it has hypothesis, index, label, premise."
    write_table(path, RTE[:-1], [(0, "a", "b")])
    assert "has no column 'label'" in refused(tmp_path)
    write_table(path, RTE, [(0, "a", "b", "entailment"), (1, "a", "b", "maybe")])
    assert refused(tmp_path) == (
        f"{path}:3 has the label 'maybe', which is none of RTE's (entailment, not_entailment) nor a number from 0 to 1."
    )
    write_table(path, RTE, [(0, "a", "b", "-1")])
    assert "is unlabelled (its label is '-1')" in refused(tmp_path)
    write_table(path, RTE, [(0, "a", "b", "")])
    assert "is unlabelled (its label is '')" in refused(tmp_path)
    write_table(path, RTE, [])
    assert refused(tmp_path) == f"'{path}' holds no row of the split 'validation' of RTE."
    path.write_bytes(b"")
    assert "holds no row" in refused(tmp_path)
    path.write_bytes("\t".join(RTE).encode() + b"\n0\ta\tcaf\xe9\t1\n")
    assert "line with bytes that are not UTF-8" in refused(tmp_path)
    path.write_bytes("\t".join(RTE).encode("utf-16"))
    assert "file not in UTF-8" in refused(tmp_path)


def test_values_and_headless_tables(tmp_path: Path) -> None:
    write_table(tmp_path / "STS-B/dev.tsv", ("index", "sentence1", "sentence2", "score"), [(0, "a", "b", "high")])
    assert "has the label 'high', which is not a finite number" in refused(tmp_path, "stsb")
    write_table(tmp_path / "CoLA/dev.tsv", ("sentence", "label"), [("a", 1)])
    assert "2 x row with too few fields" in refused(tmp_path, "cola")


def test_json(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "csl/dev.json", [{"id": 0, "abst": "a", "keyword": ["b"], "label": "1"}])
    path.write_text(path.read_text() + '{"id": 1, "abst":\n')
    assert refused(tmp_path, "csl") == f"'{path}' cannot be read as a whole: line of invalid JSON ({path}:2)."
    write_lines(path, [{"id": 0, "abst": "a", "keyword": 5, "label": "1"}])
    assert "has no text in its column 'keyword', but 5" in refused(tmp_path, "csl")
    write_lines(path, [[1, 2]])
    assert "JSON value that is not an object" in refused(tmp_path, "csl")


def test_questions(tmp_path: Path) -> None:
    path = tmp_path / "dev-v1.1.json"
    path.write_text('{"version": "1.1", "data": [{"paragraphs": [')
    assert "line of invalid JSON" in refused(tmp_path, "squad")
    path.write_text('{"data": [{"paragraphs": [{"qas": [{"id": "a"}]}]}]}')
    assert "is not laid out as SQuAD's" in refused(tmp_path, "squad")
    write_squad(path, (CONTEXT, [question("a", "?")]))
    assert "has no answer, but every question of SQuAD 1.1 has one" in refused(tmp_path, "squad")
    write_squad(path, (CONTEXT, [question("a", "?", ("old", 25)), question("a", "??", ("old", 25))]))
    assert "has the id 'a' of an earlier question" in refused(tmp_path, "squad")
    write_squad(path, (CONTEXT, [{"id": "a", "question": "?", "answers": [{"text": "old"}]}]))
    assert "are not as SQuAD has them" in refused(tmp_path, "squad")
    write_squad(path, (CONTEXT, [{"id": "a", "question": "?"}]))
    assert "has no column 'answers'" in refused(tmp_path, "squad")
