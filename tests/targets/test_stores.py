"""Stores of targets: what is written is read again, whatever ends a process, and damage is refused in one line."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from limbeck.core.hashing import fingerprint
from limbeck.core.paths import LOCK
from limbeck.errors import ModelError, OutputError
from limbeck.targets import writer as writer_module
from limbeck.targets.drift import describe_drift, measure_drift
from limbeck.targets.facts import STORE_FACTS, STORE_FORMAT, StoreFacts, read_facts
from limbeck.targets.journal import read_journal
from limbeck.targets.row_files import KEY
from limbeck.targets.store import Store
from limbeck.targets.writer import StoreWriter, hold_store, hold_store_alone, merge_files, open_store

WIDTH = 8


def facts_of(**changes):
    return StoreFacts(**{"teacher": "a teacher", "weights": "abc", "streams": {"vector": WIDTH}, **changes})


def values_of(keys):
    """Numbers of each key that no other key has."""
    return np.stack([np.random.default_rng(abs(int(key))).standard_normal(WIDTH) for key in keys]).astype(np.float32)


def fill(folder, *batches, facts=None, process=0):
    open_store(folder, facts or facts_of())
    with StoreWriter(folder, process) as writer:
        for keys in batches:
            writer.add(np.array(keys), {"vector": values_of(keys)})


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


def test_rows_are_found_in_any_order(folder):
    fill(folder, [5, -3], [2**62, 0])
    fill(folder, [7], process=1)
    store = Store(folder)
    keys = np.array([7, 0, -3, 7, 2**62])
    assert np.array_equal(store.read(keys)["vector"], values_of(keys))
    assert store.keys.tolist() == [-3, 0, 5, 7, 2**62]
    assert store.has(np.array([5, 6, 8, -4])).tolist() == [True, False, False, False]
    with pytest.raises(ModelError, match="1 of 2 texts are not in the store"):
        store.read(np.array([5, 6]))


@pytest.mark.parametrize(
    ("number_format", "largest_error"), [("float32", 0), ("float16", 2**-11), ("int8", 0.5 / 127 * (1 + 1e-5))]
)
def test_numbers_are_kept_as_well_as_their_format_allows(folder, number_format, largest_error):
    keys = np.arange(50)
    fill(folder, keys, facts=facts_of(number_format=number_format))
    stored = Store(folder).read(keys)["vector"]
    exact = values_of(keys)
    # float16 rounds each number, int8 to a share of the row's largest.
    scale = np.abs(exact) if number_format == "float16" else np.abs(exact).max(axis=1, keepdims=True)
    assert np.all(np.abs(stored - exact) <= largest_error * scale)
    size = sum(path.stat().st_size for path in folder.glob("rows-*.safetensors"))
    assert 50 * facts_of(number_format=number_format).row_bytes <= size < 50 * facts_of().row_bytes + 500


def test_a_row_of_zeros_and_numbers_that_cannot_be_kept(folder):
    open_store(folder, facts_of(number_format="int8"))
    with StoreWriter(folder) as writer:
        writer.add(np.array([1]), {"vector": np.zeros((1, WIDTH), np.float32)})
        for bad in (np.nan, np.inf):
            with pytest.raises(ModelError, match="not finite"):
                writer.add(np.array([2]), {"vector": np.full((1, WIDTH), bad, np.float32)})
    assert np.array_equal(Store(folder).read(np.array([1]))["vector"], np.zeros((1, WIDTH)))
    open_store(folder.parent / "half", facts_of(number_format="float16"))
    with StoreWriter(folder.parent / "half") as writer, pytest.raises(ModelError, match="too large for float16"):
        writer.add(np.array([2]), {"vector": np.full((1, WIDTH), 1e5, np.float32)})
    with StoreWriter(folder.parent / "half") as writer, pytest.raises(ModelError, match="too small for float16"):
        writer.add(np.array([2]), {"vector": np.full((1, WIDTH), 1e-9, np.float32)})


def test_streams_that_lack_or_have_another_width_are_refused(folder):
    open_store(folder, facts_of())
    with StoreWriter(folder) as writer:
        with pytest.raises(ModelError, match=r"'vector' of the shape \[1, 8\], but has the shape \[1, 4\]"):
            writer.add(np.array([1]), {"vector": np.zeros((1, 4), np.float32)})
        with pytest.raises(ModelError, match="no such tensor"):
            writer.add(np.array([1]), {"pooled": np.zeros((1, WIDTH), np.float32)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": "other", "teacher": "B"}, "holds what 'a teacher' said, which is not this 'B'"),
        ({"streams": {"vector": 4}}, "holds vector of 8 numbers, not vector of 4 numbers"),
        ({"number_format": "int8"}, "holds numbers as float32, not int8"),
        ({"prompts": {"default": "q: "}}, "holds vectors of texts with no prompts, not with the prompts default='q: '"),
        (
            {"computed_in": "float32"},
            "holds what 'a teacher' computed in bfloat16, not float32; set teacher.dtype to bfloat16 to go on with it, "
            "or give another folder as --output",
        ),
    ],
)
def test_a_store_takes_only_outputs_of_its_teacher(folder, changes, message):
    open_store(folder, facts_of(computed_in="bfloat16"))
    changes = {"computed_in": "bfloat16", **changes}
    with pytest.raises(OutputError, match=message):
        open_store(folder, facts_of(**changes))


def test_a_store_that_does_not_know_what_its_teacher_computed_in_goes_on(folder):
    before = open_store(folder, facts_of()).facts
    assert open_store(folder, facts_of(computed_in="bfloat16")).facts == before
    # Runs have recorded this identity.
    assert before.identity == fingerprint(["abc", {"vector": WIDTH}, "float32"])
    assert facts_of(computed_in="bfloat16").identity != before.identity


@pytest.mark.parametrize(
    ("computed_in", "factor", "says"),
    [
        ("float32", 1 + 1e-5, "the same as when the store was made, up to the rounding of float32"),
        ("float32", 1.01, "has changed since the store was made: rounding of float32"),
        ("bfloat16", 1.01, "up to the rounding of bfloat16 and float32"),
        ("bfloat16", 1.2, "has changed since the store was made: rounding of bfloat16 and float32"),
        ("", 1.01, "up to the rounding of bfloat16 and float32"),
    ],
)
def test_a_drift_that_rounding_explains_is_told_from_another_teacher(computed_in, factor, says):
    values = values_of([1, 2, 3])
    drift = measure_drift({"vector": values}, {"vector": values * np.float32(factor)})
    assert says in describe_drift(drift, facts_of(computed_in=computed_in))


def test_a_teacher_of_zeros_alone_is_refused():
    values = values_of([1, 2, 3])
    with pytest.raises(ModelError, match="The teacher gives nothing but zeros for the vector of 3 texts"):
        measure_drift({"vector": values}, {"vector": np.zeros_like(values)})


def test_files_are_begun_anew_and_merged(folder, monkeypatch):
    monkeypatch.setattr(writer_module, "FILE_BYTES", 100)
    fill(folder, [1, 2, 3], [4, 5, 6], [7])
    assert len(Store(folder).files) == 3
    monkeypatch.setattr(writer_module, "FILE_BYTES", 1_000_000)
    assert merge_files(folder) == 3
    store = Store(folder)
    assert len(store.files) == 1
    assert np.array_equal(store.read(store.keys)["vector"], values_of(range(1, 8)))
    assert merge_files(folder) == 0


KILLED = """
import sys
import numpy as np
from limbeck.targets import writer as writer_module
from limbeck.targets.writer import StoreWriter
writer_module.FILE_BYTES = 400
folder = sys.argv[1]
with StoreWriter(folder) as writer:
    for key in range(int(sys.argv[2]), 10**9):
        writer.add(np.array([key]), {"vector": np.full((1, 8), key, np.float32)})
        print(key, flush=True)
"""


def test_a_process_that_is_killed_loses_nothing_that_it_added(folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    added = -1
    for number in range(5):
        store = open_store(folder, facts_of())
        assert len(store) >= added + 1
        # Each key up to the last one is there once; the batch at which it was killed may be there too.
        assert store.keys.tolist() == list(range(len(store)))
        assert sum(len(keys) for keys in store.keys_of_files()) == len(store)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(
            [sys.executable, str(script), str(folder), str(len(store))],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(7 + 4 * number):
            added = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        added = int(rest[-1]) if rest else added
        process.stdout.close()
        process.wait()
    store = open_store(folder, facts_of())
    assert store.keys.tolist() == list(range(len(store)))
    assert added + 1 <= len(store) <= added + 2
    assert np.array_equal(store.read(store.keys)["vector"][:, 0], store.keys)


def test_a_batch_that_was_half_written_is_left_out(folder):
    open_store(folder, facts_of())
    writer = StoreWriter(folder)
    writer.add(np.array([1, 2]), {"vector": values_of([1, 2])})
    writer.add(np.array([3]), {"vector": values_of([3])})
    (journal,) = folder.glob("*.journal")
    whole = journal.read_bytes()
    for end in (len(whole) - 1, len(whole) - 100, 30):
        journal.write_bytes(whole[:end])
        rows = sum(len(batch[KEY]) for batch in read_journal(journal))
        assert len(Store(folder)) == rows
        assert rows in (0, 2)
    # A flipped bit ends the journal too.
    journal.write_bytes(whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
    assert len(Store(folder)) == 0
    writer.close()


def test_rows_of_a_file_are_not_taken_from_a_journal_again(folder):
    open_store(folder, facts_of())
    with StoreWriter(folder) as writer:
        writer.add(np.array([1, 2]), {"vector": values_of([1, 2])})
        (journal,) = folder.glob("*.journal")
        rows = journal.read_bytes()
    # Killed after the file was written, before the journal was emptied.
    journal.write_bytes(rows)
    store = open_store(folder, facts_of())
    assert sum(len(keys) for keys in store.keys_of_files()) == len(store) == 2
    assert not journal.exists()


def test_a_file_without_its_note_is_no_part_of_the_store(folder):
    fill(folder, [1])
    fill(folder, [2], process=1)
    (folder / "rows-001-00000.json").unlink()
    assert Store(folder).keys.tolist() == [1]
    assert open_store(folder, facts_of()).keys.tolist() == [1]
    assert not (folder / "rows-001-00000.safetensors").exists()


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_damage_is_refused_in_one_line(folder):
    fill(folder, [1, 2])
    rows = folder / "rows-000-00000.safetensors"
    flip(rows, -3)
    with pytest.raises(ModelError, match="is damaged: 'rows-000-00000.safetensors' has changed since it was written"):
        Store(folder)
    flip(rows, -3)
    rows.write_bytes(rows.read_bytes()[:-10])
    with pytest.raises(ModelError, match="has changed since it was written"):
        Store(folder)
    flip(folder / STORE_FACTS, 40)
    with pytest.raises(ModelError, match=r"is damaged: 'store.json' has changed"):
        read_facts(folder)


def test_other_folders_and_newer_versions_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="is not a store of a teacher's outputs; make a store with `limbeck teach`"):
        Store(tmp_path)
    monkeypatch.setattr("limbeck.targets.facts.STORE_FORMAT", STORE_FORMAT + 1)
    fill(tmp_path / "new", [1])
    monkeypatch.undo()
    with pytest.raises(ModelError, match=re.escape("is of format 2, but this version of limbeck reads format 1")):
        Store(tmp_path / "new")
    assert json.loads((tmp_path / "new" / STORE_FACTS).read_text())["facts"]["teacher"] == "a teacher"


def test_unknown_number_formats_and_empty_stores_are_refused():
    with pytest.raises(ModelError, match=r"Unknown number format 'float61' of a store. Did you mean 'float16'"):
        facts_of(number_format="float61")
    with pytest.raises(ModelError, match="no kind of output to store"):
        facts_of(streams={})


def test_a_store_whose_lock_cannot_be_written_says_so_and_not_that_it_is_in_use(folder, tmp_path):
    open_store(folder, facts_of())
    (tmp_path / "elsewhere").touch()
    (folder / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="cannot be written"):
        hold_store_alone(folder)
    assert hold_store(folder) is None
