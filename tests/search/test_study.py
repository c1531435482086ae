"""Opening a study: every storage, its identity, and what is refused."""

import json
import shutil
from functools import partial
from pathlib import Path

import optuna
import pytest
from rich.console import Console
from sqlalchemy.pool import NullPool

from limbeck.errors import OutputError
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.search import generation_rows, open_study, run_search
from limbeck.search import storage as storage_room
from limbeck.search.identity import proxy_identity
from limbeck.search.storage import open_storage
from limbeck.training.corpora import build_corpora
from limbeck.training.run_tokenizers import load_tokenizers
from tests.support.comparisons import write_teacher
from tests.support.corpora import write_text
from tests.support.known_search import SPACE, evaluate, expected_generations, fitness, open_known, sampler
from tests.support.searches import recipe_of


def test_a_study_goes_on_where_it_is_opened_again(place):
    run_search(open_known(place), evaluate, generations=2, batch=6)
    study = open_known(place)
    assert [row.number for row in generation_rows(study, SPACE)] == [1, 2]
    run_search(study, evaluate, generations=3, batch=6)
    # Optuna's dashboard reads the same: every trial with the parameters and the value that it plots.
    for read in [study, optuna.load_study(study_name="known", storage=open_storage(place))]:
        assert {tuple(sorted(trial.params)) for trial in read.trials} == {("layer_1", "layer_2", "layer_3", "layer_4")}
        assert all(trial.value == fitness(tuple(trial.params.values())) for trial in read.trials)
        assert {trial.user_attrs["generation"] for trial in read.trials} <= {1, 2, 3}
    members = {genome for generation in expected_generations(3) for genome in generation}
    assert len(study.trials) == len(members)


def test_a_study_of_something_else_is_refused_and_left_alone(tmp_path):
    place = tmp_path / "search.journal"
    study = open_known(place)
    run_search(study, evaluate, generations=1, batch=6)
    brought = sampler()
    same = {"teacher": "a teacher", "corpus": "some text"} | brought.identity
    others = [
        (same | {"teacher": "another"}, 'another teacher: "a teacher", not "another"'),
        ({key: value for key, value in same.items() if key != "corpus"}, '"some text", not null'),
        (same | {"method": {"name": "elm"}}, 'another method: null, not {"name": "elm"}'),
    ]
    for identity, message in others:
        with pytest.raises(OutputError) as caught:
            open_study(place, "known", identity, brought)
        assert message in str(caught.value)
    with pytest.raises(OutputError, match="was begun to maximize, but this search has to minimize"):
        open_study(place, "known", same, optuna.samplers.RandomSampler(), direction="minimize")
    assert len(open_known(place).trials) == len(study.trials)
    assert open_known(place, name="other").trials == []


def test_a_study_that_is_not_ours_is_refused(tmp_path):
    place = tmp_path / "search.journal"
    foreign = optuna.create_study(storage=open_storage(place), study_name="known")
    foreign.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    with pytest.raises(OutputError, match="trials that no limbeck search made"):
        open_known(place)


def test_an_unfinished_last_line_of_a_journal_costs_only_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("runs/first/search.journal")  # in folders that are not there yet
    run_search(open_known(path), evaluate, generations=1, batch=6)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code":4,"worker_id":"abc","stu')
    study = open_known(path)
    assert len(study.trials) == 6
    run_search(study, evaluate, generations=2, batch=6)
    assert len(open_known(path).trials) == len(study.trials) > 6
    assert path.read_bytes().startswith(whole)
    assert not path.with_name("search.journal.lock").is_symlink()
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a diary without a line end", "is not a search journal and is left unchanged"),
        (b'{"op_code":0,"worker_id"\n{"op_code":1}\n', "is damaged"),
        (b'{"op_code":99}\n{"op_code":1}\n', "is damaged"),
        (b"SQLite format 3\0", "give its URL, sqlite:///"),
    ],
    ids=["text", "broken line", "unknown operation", "sqlite"],
)
def test_files_that_are_no_journals_are_left_alone(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(OutputError, match=message):
        open_known(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("copied", [False, True])
def test_the_lock_of_a_journal_that_was_moved_is_taken_for_dead(tmp_path, monkeypatch, copied):
    monkeypatch.setattr(storage_room, "_LOCK_SECONDS", 0.2)
    (tmp_path / "before").mkdir()
    path = tmp_path / "before" / "search.journal"
    open_known(path)
    path.with_name("search.journal.lock").symlink_to(path)  # Its writer was killed.
    move = partial(shutil.copytree, symlinks=True) if copied else shutil.move
    move(tmp_path / "before", tmp_path / "after")
    open_known(tmp_path / "after" / "search.journal")
    assert not (tmp_path / "after" / "search.journal.lock").is_symlink()


def test_no_connection_to_a_file_is_left_open(tmp_path):
    storage = open_storage(f"sqlite:///{tmp_path / 'search.db'}")
    assert storage.get_all_studies() == []
    assert isinstance(storage.engine.pool, NullPool), "from Python 3.13 on a connection that is left warns"


def test_the_identity_of_a_search_is_that_of_its_content_wherever_it_lies(tmp_path):
    teacher, text, result = write_teacher(tmp_path), write_text(tmp_path / "text", 20), []
    shape = {"layers": 2, "hidden": 32, "heads": 4, "ffn": 48}
    for place in (tmp_path / "one", tmp_path / "other"):
        shutil.copytree(teacher, place / "teacher")
        shutil.copytree(text, place / "text", copy_function=shutil.copy)
        recipe = recipe_of(place / "teacher", place / "text", shape, 32, {"name": "minilmv2"})
        recipe["corpus"] |= {"sources": [], "mix": {"by": f"{place}/text/{{part}}.txt", "exponent": 0.3}}
        plan = plan_run(load_recipe(recipe))
        corpora = build_corpora(plan, load_tokenizers(plan).of_stage, Console(quiet=True))
        result.append(proxy_identity(plan, corpora, 1.0))
        assert result[-1]["corpus"] != [corpora[0].path.name]
    assert result[0] == result[1]
    sampler, earlier = optuna.samplers.RandomSampler(), {"corpus": [corpora[0].path.name]}
    open_study(tmp_path / "journal", "old", {**result[0], **earlier}, sampler)
    open_study(tmp_path / "journal", "old", result[0], sampler, earlier=earlier)
    with pytest.raises(OutputError, match="was begun with another corpus"):
        open_study(tmp_path / "journal", "old", result[0], sampler)
