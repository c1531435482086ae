"""Several processes: the trajectory of one, and ends that all come to together."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from limbeck.methods import METHODS
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.run import build_corpora, load_tokenizer_of
from tests.support.methods import tiny_run, write_rows
from tests.support.models import make_teacher, save_folder, tiny_model
from tests.support.training import assert_equal, elsewhere, log_of, record_of, student_of
from tests.training.conftest import make_recipe

DEFAULT = ("minilmv2", "hidden_states", "mlm", "mlkd_bert", "bert_emd")
ROOT = Path(__file__).parents[2]
DIVERGING = {"learning_rate": 1e30, "max_grad_norm": 0, "warmup_steps": 0}


class Job(NamedTuple):
    job: str
    processes: int
    arguments: dict


def job(name, processes, **arguments):
    return Job(name, processes, arguments)


def distil(processes, recipe, **arguments):
    return job("distil", processes, recipe=recipe, **arguments)


def together(folder, jobs):
    """Run jobs in a script, one after the other, and return for each how its processes ended, by its name."""
    path = folder / "jobs.json"
    path.write_text(json.dumps([one._asdict() for one in jobs.values()]))
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.together", str(path)],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    # Gloo of some releases of PyTorch says on standard output whom it is connected to.
    results = [json.loads(line) for line in done.stdout.splitlines() if not line.startswith("[Gloo]")]
    assert len(results) == len(jobs), done.stderr
    return dict(zip(jobs, results, strict=True))


def assert_fine(*ended):
    for processes in ended:
        assert all(process["code"] == 0 for process in processes), processes


def assert_close(found, expected):
    for key, tensor in expected.items():
        torch.testing.assert_close(found[key], tensor, rtol=2e-5, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")


def assert_same_trajectory(first, second):
    assert_close(student_of(second), student_of(first))
    one, other = log_of(first), log_of(second)
    assert [entry.keys() for entry in one] == [entry.keys() for entry in other]
    for mine, its in zip(one, other, strict=True):
        for name in mine:
            if name.startswith(("loss", "eval_")) and not name.endswith(("runtime", "_per_second")):
                assert its[name] == pytest.approx(mine[name], rel=1e-4, abs=1e-6), (name, mine["step"])
            elif name in ("step", "epoch", "tokens", "learning_rate"):
                assert its[name] == mine[name]


def trained(recipe, output, **training):
    """A copy of a recipe with another output and other training arguments of all stages."""
    changed = elsewhere(recipe, output)
    for stage in changed["stages"]:
        stage["training"] |= training
    return changed


def divided(recipe, output, *, batch, accumulation=1):
    return trained(recipe, output, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation)


ON_ROWS = ("mlkd_bert", "bert_pkd")
#: Their terms cannot be accumulated.
COUPLING = ("mlkd_bert", "bert_emd")


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teachers")
    model = tiny_model("bert", head="classification", num_labels=3)
    return {
        "text": make_teacher(folder, "bert", head="masked_lm"),
        "rows": save_folder(model, folder / "classification", "bert"),
    }


def variants(name, folder, teachers, text):
    """The same run in one process, in two, and with accumulated gradients; last batches of epochs are not full."""
    corpus, teacher = {"sources": [str(text)], "length": 24, "held_out": 0.1, "max_documents": 11}, teachers["text"]
    if name in ON_ROWS:
        corpus, teacher = write_rows(folder / "rows", "classification", rows=30), teachers["rows"]
    # Where samples of a batch act on each other, a last batch that is not full is left out by several processes.
    training = {"max_steps": 7, "eval_strategy": "steps", "eval_steps": 3, "dataloader_drop_last": name in COUPLING}
    # Adam makes whole steps of gradients that are next to nothing, and the order of a sum decides which nothing.
    one = tiny_run(name, teacher, corpus, folder / "one", adam_epsilon=1e-4, **training)
    found = {"one": one, "two": divided(one, folder / "two", batch=4)}
    if name not in COUPLING:
        found["halves"] = divided(one, folder / "halves", batch=4, accumulation=2)
    return found


def variant_jobs(name, recipes):
    return {f"{name} {kind}": distil(2 if kind == "two" else 1, recipe) for kind, recipe in recipes.items()}


@pytest.fixture(scope="module")
def recipes(tmp_path_factory, teachers, bert_folder, text_folder):
    """The recipes of all tests of this file by name; `text` has an epoch whose last batch has a single row."""
    folder = tmp_path_factory.mktemp("together")
    base = make_recipe(bert_folder, text_folder, folder / "base")
    del base["stages"][0]["augment"]
    training = {"per_device_train_batch_size": 4, "max_steps": 9, "save_steps": 3}
    two = trained(base, folder / "two", **training)
    plain = trained(two, folder / "plain", adam_epsilon=1e-4, logging_steps=5)
    plain["student"]["dropout"] = 0.0
    quality = {"enabled": True, "speed": False, "retrieval_pairs": 10, "pairs": 10}
    shared = trained(two, folder / "shared", max_steps=2) | {"evaluation": quality}
    odd = trained(plain, folder / "odd", logging_steps=1, max_steps=14) | {"corpus": odd_text(two)}
    whole = trained(plain, folder / "whole", per_device_train_batch_size=8, max_steps=6, save_steps=2, logging_steps=1)
    sharded = divided(whole, folder / "sharded", batch=4)
    sharded["stages"][0]["training"]["fsdp"] = True
    sharded["teacher"]["sharded"] = True
    found = {
        "two": two,
        "stopped": elsewhere(two, folder / "stopped"),
        "hurt": elsewhere(two, folder / "hurt"),
        "plain": plain,
        "changed": elsewhere(plain, folder / "changed"),
        "same count": elsewhere(plain, folder / "same"),
        "diverging": trained(two, folder / "diverging", **DIVERGING),
        "no text": elsewhere(two, folder / "wrong", corpus={"sources": [str(folder / "nothing")]}),
        "full": elsewhere(two, folder / "full"),
        "shared": shared,
        "alone": divided(shared, folder / "alone", batch=8),
        "odd one": divided(odd, folder / "odd-one", batch=10),
        "odd two": divided(odd, folder / "odd-two", batch=5),
        "whole": whole,
        "whole teacher": divided(whole, folder / "halves", batch=4) | {"teacher": sharded["teacher"]},
        "sharded": sharded,
        "sharded stopped": elsewhere(sharded, folder / "sharded-stopped"),
        "refused": trained(two, folder / "refused", fsdp=True),
    }
    methods = {name: variants(name, folder / name, teachers, text_folder) for name in DEFAULT}
    return found | {"methods": methods, "folder": folder, "candidates": {n: candidates(base, 8 // n) for n in (1, 2)}}


def odd_text(recipe):
    """A part of the text with one row more than a multiple of ten."""
    for count in range(48, 60):
        text = recipe["corpus"] | {"max_documents": count}
        plan = plan_run(load_recipe(recipe | {"corpus": text}))
        (corpus,) = build_corpora(plan, load_tokenizer_of(plan), Console(file=io.StringIO()))
        if len(corpus.train) % 10 == 1:
            return text
    raise AssertionError("no number of documents makes such rows")


def candidates(recipe, batch):
    """Three mappings of one recipe, without dropout, which several processes draw otherwise than one."""
    found = []
    for mapping in ([0, 2], [1, 4], [2, 3]):
        one = divided(recipe, "unused", batch=batch)
        one["student"]["dropout"] = 0.0
        one["stages"][0]["method"] = {"name": "hidden_states", "mapping": mapping}
        one["stages"][0]["training"] |= {"max_steps": 4, "max_grad_norm": 0.05, "adam_epsilon": 1e-4}
        found.append(one)
    return found


WAYS = {"all": {}, "one is cut": {"cut": 1}, "one diverges": {"poisoned": 1}}


@pytest.fixture(scope="module")
def ended(recipes):
    """How the processes of every job ended; one script runs them all, since its imports take seconds."""
    folder, found = recipes["folder"], recipes
    same_batch = elsewhere(found["changed"], found["changed"]["output"])
    jobs = {
        "two": distil(2, found["two"]),
        "stopped": job("distil_with_signal", 2, recipe=found["stopped"], step=4, receiver=1),
        "stopped finished": distil(2, found["stopped"], resume=True),
        "died": job("distil_with_death", 2, recipe=found["hurt"], step=5, victim=1),
        "died finished": distil(2, found["hurt"], resume=True),
        "plain": distil(2, found["plain"]),
        "changed stopped": job("distil_with_signal", 2, recipe=found["changed"], step=4, receiver=0),
        "changed refused": distil(1, same_batch, resume=True),
        "changed finished": distil(1, divided(found["changed"], same_batch["output"], batch=8), resume=True),
        "same stopped": job("distil_with_signal", 2, recipe=found["same count"], step=3, receiver=0),
        "same finished": distil(2, found["same count"], resume=True),
        "diverging": distil(2, found["diverging"]),
        "no text": distil(2, found["no text"]),
        "full": job("distil_with_full_disk", 2, recipe=found["full"]),
        "full again": distil(2, found["full"]),
        "shared": distil(2, found["shared"]),
        "alone": distil(1, found["alone"]),
        "odd one": distil(1, found["odd one"]),
        "odd two": distil(2, found["odd two"]),
        "whole": distil(1, found["whole"]),
        "whole teacher": distil(2, found["whole teacher"]),
        "sharded": job("distil_sharded", 2, recipe=found["sharded"], blocks=str(folder / "blocks.json")),
        "sharded stopped": job("distil_sharded", 2, recipe=found["sharded stopped"], stop=3),
        "sharded finished": job("distil_sharded", 2, recipe=found["sharded stopped"], resume=True),
        "refused": distil(2, found["refused"]),
    }
    for name, runs in found["methods"].items():
        jobs |= variant_jobs(name, runs)
    for count, choices in found["candidates"].items():
        for way, change in WAYS.items():
            output = f"{folder}/{way}{count}"
            jobs[f"{way} {count}"] = job("train_candidates", count, recipes=choices, output=output, **change)
        jobs[f"search {count}"] = job("search_layers", count, recipe=choices[0], output=f"{folder}/search{count}")
    unwanted = {"recipe": found["candidates"][2][0], "output": f"{folder}/tasks", "tasks": "sst2"}
    return together(folder, jobs | {"search on tasks": job("search_layers", 2, **unwanted)})


@pytest.mark.parametrize("name", DEFAULT)
def test_one_process_two_processes_and_accumulation_take_the_same_steps(name, ended, recipes):
    assert_fine(*(ended[f"{name} {kind}"] for kind in recipes["methods"][name]))
    one, *others = recipes["methods"][name].values()
    for other in others:
        assert_same_trajectory(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(METHODS) - set(DEFAULT)))
def test_every_other_method_does_too(name, tmp_path, teachers, text_folder):
    found = variants(name, tmp_path, teachers, text_folder)
    assert_fine(*together(tmp_path, variant_jobs(name, found)).values())
    one, *others = found.values()
    for other in others:
        assert_same_trajectory(one, other)


def test_a_signal_to_one_process_stops_both_at_one_step_and_the_run_goes_on_as_if_nothing_had_been(ended, recipes):
    signal = ended["stopped"]
    assert [process["code"] for process in signal] == [75, 75]
    assert signal[0]["said"].startswith("Stopped at step 5 ")
    assert signal[1]["said"] == ""
    assert_fine(ended["two"], ended["stopped finished"])
    assert_equal(student_of(recipes["stopped"]), student_of(recipes["two"]))
    losses = [[entry.get("loss") for entry in log_of(recipes[name])] for name in ("two", "stopped")]
    assert losses[0] == losses[1]


def test_when_a_process_dies_the_others_end_with_a_line_and_the_run_goes_on(ended, recipes):
    died = ended["died"]
    assert [process["code"] for process in died] == [1, -9]
    assert died[0]["said"].startswith("Process 0 lost touch with another one")
    assert_fine(ended["died finished"])
    assert_equal(student_of(recipes["hurt"]), student_of(recipes["two"]))


def test_a_run_goes_on_with_another_number_of_processes(ended, recipes):
    assert [process["code"] for name in ("changed stopped", "same stopped") for process in ended[name]] == [75] * 4
    (refused,) = ended["changed refused"]
    assert "rows a step" in refused["said"] and refused["code"] == 2
    assert_fine(ended["plain"], ended["changed finished"], ended["same finished"])
    assert_close(student_of(recipes["changed"]), student_of(recipes["plain"]))
    for name in ("changed", "same count"):  # The mean of a log that was begun before the stop is of all its steps.
        found, expected = (
            [entry["loss"] for entry in log_of(recipes[run]) if "loss" in entry] for run in (name, "plain")
        )
        assert found == pytest.approx(expected, rel=1e-5)


def test_the_rows_of_every_process_are_saved_with_a_bad_loss(ended, recipes):
    assert [process["code"] for process in ended["diverging"]] == [1, 1]
    saved = sorted(Path(recipes["diverging"]["output"]).glob("stages/1-*/bad_batches/*"))
    assert [path.name.split(".", 1)[1] for path in saved] == ["process-0.safetensors", "process-1.safetensors"]
    assert all(len(load_file(path)["0.input_ids"]) == 4 for path in saved)


def test_a_process_without_a_row_takes_the_step_with_none(ended, recipes):
    assert_fine(ended["odd one"], ended["odd two"])
    assert_same_trajectory(recipes["odd one"], recipes["odd two"])


def test_a_mistake_is_said_once_by_the_main_process(ended, recipes):
    said = {"no text": "nothing", "full": "No space left", "diverging": "step", "full again": "is not empty"}
    for name, line in {**said, "refused": "training.fsdp shards over several GPUs"}.items():
        first, second = ended[name]
        assert line in first["said"]
        assert second["said"] == ""
        assert first["code"] == second["code"] > 0
    assert [path.name for path in Path(recipes["full"]["output"]).glob("stages/1-*/checkpoint-*")] == ["checkpoint-3"]


def test_several_processes_leave_what_one_leaves(ended, recipes):
    assert_fine(ended["shared"], ended["alone"])
    found, expected = (
        {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        for folder in (Path(recipes[name]["output"]) for name in ("shared", "alone"))
    )
    assert found == expected
    record = record_of(recipes["shared"])
    assert record["status"] == "finished"
    assert record["evaluation"]
    saved = load_file(Path(recipes["shared"]["output"], "stages/1-minilmv2/model.safetensors"))
    assert not [name for name in saved if "teacher" in name]


def test_a_sharded_student_and_a_sharded_teacher_take_the_same_steps(ended, recipes):
    assert_fine(*(ended[name] for name in ("whole", "whole teacher", "sharded", "sharded finished")))
    assert [process["code"] for process in ended["sharded stopped"]] == [75, 75]
    assert json.loads((recipes["folder"] / "blocks.json").read_text()) == []
    for name in ("whole teacher", "sharded", "sharded stopped"):
        assert_same_trajectory(recipes["whole"], recipes[name])
    assert_equal(student_of(recipes["sharded stopped"]), student_of(recipes["sharded"]))


def test_students_under_one_teacher_learn_in_two_processes_as_in_one(ended, recipes):
    folder = recipes["folder"]
    for way in WAYS:
        assert_fine(ended[f"{way} 1"], ended[f"{way} 2"])
        one, two = (json.loads((folder / f"{way}{count}.json").read_text()) for count in (1, 2))
        assert [found[:2] for found in one] == [found[:2] for found in two]
        for number, (mine, its) in enumerate(zip(one, two, strict=True)):
            assert its[2] == pytest.approx(mine[2], rel=1e-4)
            ours, theirs = (load_file(folder / f"{way}{count}-{number}.safetensors") for count in (1, 2))
            assert_close(theirs, ours)
    assert [found[0] for found in json.loads((folder / "one is cut2.json").read_text())] == [4, 2, 4]
    assert [found[1] for found in json.loads((folder / "one diverges2.json").read_text())] == [False, True, False]


def test_a_search_in_two_processes_finds_what_it_finds_in_one_and_refuses_tasks(ended, recipes):
    assert_fine(ended["search 1"], ended["search 2"])
    one, two = (json.loads((recipes["folder"] / f"search{n}" / "found.json").read_text()) for n in (1, 2))
    assert [row["mapping"] for row in two["candidates"]] == [row["mapping"] for row in one["candidates"]]
    fitness = [[row["fitness"] for row in record["candidates"]] for record in (one, two)]
    assert fitness[1] == pytest.approx(fitness[0], rel=1e-3)
    refused = ended["search on tasks"]
    assert refused[0]["said"].startswith("--tasks are fine-tuned by one process")
    assert [process["code"] for process in refused] == [2, 2]
