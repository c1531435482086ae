"""Several processes: the trajectory of one, and ends that all come to together."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from limbeck.methods import METHODS
from tests.support.methods import tiny_run, write_rows
from tests.support.models import make_teacher, save_folder, tiny_model

DEFAULT = ("minilmv2", "hidden_states", "mlm", "mlkd_bert", "bert_emd")
ROOT = Path(__file__).parents[2]


def together(tmp_path, *jobs):
    """Run jobs in a script, and return for each what its processes ended with."""
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(jobs))
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.together", str(path)],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    # Gloo of some releases of PyTorch says on standard output whom it is connected to.
    results = [json.loads(line) for line in done.stdout.splitlines() if not line.startswith("[Gloo]")]
    assert len(results) == len(jobs), done.stderr
    return results


def job(name, processes, **arguments):
    return {"job": name, "processes": processes, "arguments": arguments}


def weights(recipe):
    return load_file(f"{recipe['output']}/student/model.safetensors")


def logs(recipe):
    files = sorted(Path(recipe["output"]).glob("stages/*/log.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def assert_same_trajectory(first, second):
    ours, theirs = weights(first), weights(second)
    for key, tensor in ours.items():
        torch.testing.assert_close(
            theirs[key], tensor, rtol=2e-5, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}"
        )
    one, other = logs(first), logs(second)
    assert [entry.keys() for entry in one] == [entry.keys() for entry in other]
    for mine, its in zip(one, other, strict=True):
        for name in mine:
            if name.startswith(("loss", "eval_")) and not name.endswith(("runtime", "_per_second")):
                assert its[name] == pytest.approx(mine[name], rel=1e-4, abs=1e-6), (name, mine["step"])
            elif name in ("step", "epoch", "tokens", "learning_rate"):
                assert its[name] == mine[name]


def divided(recipe, output, *, batch, accumulation=1):
    changed = json.loads(json.dumps(recipe))
    changed["output"] = str(output)
    for stage in changed["stages"]:
        stage["training"] |= {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
    return changed


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
    corpus, teacher = {"sources": [str(text)], "length": 24, "held_out": 0.1}, teachers["text"]
    if name in ON_ROWS:
        corpus, teacher = write_rows(folder / "rows", "classification", rows=50), teachers["rows"]
    # Where samples of a batch act on each other, a last batch that is not full is left out by several processes.
    training = {"max_steps": 15, "eval_strategy": "steps", "eval_steps": 7, "dataloader_drop_last": name in COUPLING}
    # Adam makes whole steps of gradients that are next to nothing, and the order of a sum decides which nothing.
    one = tiny_run(name, teacher, corpus, folder / "one", adam_epsilon=1e-4, **training)
    found = {"one": one, "two": divided(one, folder / "two", batch=4)}
    if name not in COUPLING:
        found["halves"] = divided(one, folder / "halves", batch=4, accumulation=2)
    return found


@pytest.fixture(scope="module")
def trajectories(tmp_path_factory, teachers, text_folder):
    """Runs of the methods that are tried by default, in one script."""
    folder = tmp_path_factory.mktemp("trajectories")
    found = {name: variants(name, folder / name, teachers, text_folder) for name in DEFAULT}
    run_variants(folder, found)
    return found


def run_variants(folder, found):
    jobs = [
        job("distil", 2 if kind == "two" else 1, recipe=recipe)
        for recipes in found.values()
        for kind, recipe in recipes.items()
    ]
    for processes in together(folder, *jobs):
        assert all(process["code"] == 0 for process in processes), processes


@pytest.mark.parametrize("name", DEFAULT)
def test_one_process_two_processes_and_accumulation_take_the_same_steps(name, trajectories):
    one, *others = trajectories[name].values()
    for other in others:
        assert_same_trajectory(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(METHODS) - set(DEFAULT)))
def test_every_other_method_does_too(name, tmp_path, teachers, text_folder):
    found = variants(name, tmp_path, teachers, text_folder)
    run_variants(tmp_path, {name: found})
    one, *others = found.values()
    for other in others:
        assert_same_trajectory(one, other)


@pytest.fixture
def in_two(tiny_recipe):
    """A recipe of a moment, for two processes."""
    tiny_recipe["stages"][0]["training"] |= {"per_device_train_batch_size": 4, "max_steps": 9, "save_steps": 3}
    return tiny_recipe


def elsewhere(recipe, folder, **changes):
    return json.loads(json.dumps(recipe)) | {"output": str(folder), **changes}


def test_a_signal_to_one_process_stops_both_at_one_step_and_the_run_goes_on_as_if_nothing_had_been(in_two, tmp_path):
    in_two["student"]["dropout"] = 0.1
    stopped = elsewhere(in_two, tmp_path / "stopped")
    whole, signal, finished = together(
        tmp_path,
        job("distil", 2, recipe=in_two),
        job("distil_with_signal", 2, recipe=stopped, step=4, receiver=1),
        job("distil", 2, recipe=stopped, resume=True),
    )
    assert [process["code"] for process in signal] == [75, 75]
    assert signal[0]["said"].startswith("Stopped at step 5 ")
    assert signal[1]["said"] == ""
    for process in (*whole, *finished):
        assert process["code"] == 0, process
    ours, theirs = weights(in_two), weights(stopped)
    for key, tensor in ours.items():
        assert torch.equal(tensor, theirs[key]), key
    assert [entry.get("loss") for entry in logs(in_two)] == [entry.get("loss") for entry in logs(stopped)]


def test_when_a_process_dies_the_others_end_with_a_line_and_the_run_goes_on(in_two, tmp_path):
    hurt = elsewhere(in_two, tmp_path / "hurt")
    whole, died, finished = together(
        tmp_path,
        job("distil", 2, recipe=in_two),
        job("distil_with_death", 2, recipe=hurt, step=5, victim=1),
        job("distil", 2, recipe=hurt, resume=True),
    )
    assert [process["code"] for process in died] == [1, -9]
    assert died[0]["said"].startswith("Process 0 lost touch with another one")
    for process in (*whole, *finished):
        assert process["code"] == 0, process
    for key, tensor in weights(in_two).items():
        assert torch.equal(tensor, weights(hurt)[key]), key


def test_a_run_goes_on_with_another_number_of_processes(in_two, tmp_path):
    in_two["student"]["dropout"] = 0.0
    in_two["stages"][0]["training"] |= {"adam_epsilon": 1e-4, "logging_steps": 5}
    changed = elsewhere(in_two, tmp_path / "changed")
    one = divided(changed, changed["output"], batch=8)
    same_batch = elsewhere(changed, changed["output"])
    same_count = elsewhere(in_two, tmp_path / "same")
    whole, stopped, refused, finished, stopped_too, gone_on = together(
        tmp_path,
        job("distil", 2, recipe=in_two),
        job("distil_with_signal", 2, recipe=changed, step=4, receiver=0),
        job("distil", 1, recipe=same_batch, resume=True),
        job("distil", 1, recipe=one, resume=True),
        job("distil_with_signal", 2, recipe=same_count, step=3, receiver=0),
        job("distil", 2, recipe=same_count, resume=True),
    )
    assert [process["code"] for process in (*stopped, *stopped_too)] == [75] * 4
    assert "rows a step" in refused[0]["said"] and refused[0]["code"] == 2
    for process in (*whole, *finished, *gone_on):
        assert process["code"] == 0, process
    for key, tensor in weights(in_two).items():
        torch.testing.assert_close(weights(changed)[key], tensor, rtol=2e-5, atol=1e-5)
    for other in (changed, same_count):  # The mean of a log that was begun before the stop is of all its steps.
        found, expected = ([entry["loss"] for entry in logs(run) if "loss" in entry] for run in (other, in_two))
        assert found == pytest.approx(expected, rel=1e-5)


def test_the_rows_of_every_process_are_saved_with_a_bad_loss(in_two, tmp_path):
    in_two["stages"][0]["training"] |= {"learning_rate": 1e30, "max_grad_norm": 0, "warmup_steps": 0}
    (found,) = together(tmp_path, job("distil", 2, recipe=in_two))
    assert [process["code"] for process in found] == [1, 1]
    saved = sorted(Path(in_two["output"]).glob("stages/1-*/bad_batches/*"))
    assert [path.name.split(".", 1)[1] for path in saved] == ["process-0.safetensors", "process-1.safetensors"]
    assert all(len(load_file(path)["0.input_ids"]) == 4 for path in saved)


def test_a_process_without_a_row_takes_the_step_with_none(in_two, tmp_path):
    """Some number of documents makes epochs whose last batch has a single row."""
    in_two["student"]["dropout"] = 0.0
    in_two["stages"][0]["training"] |= {"adam_epsilon": 1e-4, "max_steps": 30}
    texts = [in_two["corpus"] | {"max_documents": count} for count in range(48, 60)]
    paths = [tmp_path / f"rows-{number}" for number in range(len(texts))]
    jobs = [
        job("count_rows", 1, recipe=elsewhere(in_two, tmp_path / f"{path.name}-run", corpus=text), output=str(path))
        for text, path in zip(texts, paths, strict=True)
    ]
    together(tmp_path, *jobs)
    text = next(text for text, path in zip(texts, paths, strict=True) if int(path.read_text()) % 10 == 1)
    one = divided(in_two, tmp_path / "one", batch=10) | {"corpus": text}
    two = divided(in_two, tmp_path / "two", batch=5) | {"corpus": text}
    for processes in together(tmp_path, job("distil", 1, recipe=one), job("distil", 2, recipe=two)):
        assert all(process["code"] == 0 for process in processes), processes
    assert_same_trajectory(one, two)


def test_a_mistake_is_said_once_by_the_main_process(in_two, tmp_path):
    wrong = elsewhere(in_two, tmp_path / "wrong", corpus={"sources": [str(tmp_path / "nothing")]})
    full = elsewhere(in_two, tmp_path / "full")
    diverging = elsewhere(in_two, tmp_path / "diverging")
    diverging["stages"][0]["training"] |= {"learning_rate": 1e30, "max_grad_norm": 0, "warmup_steps": 0}
    no_text, disk, loss, again = together(
        tmp_path,
        job("distil", 2, recipe=wrong),
        job("distil_with_full_disk", 2, recipe=full),
        job("distil", 2, recipe=diverging),
        job("distil", 2, recipe=full),
    )
    for processes, said in ((no_text, "nothing"), (disk, "No space left"), (loss, "step"), (again, "is not empty")):
        assert said in processes[0]["said"]
        assert processes[1]["said"] == ""
        assert processes[0]["code"] == processes[1]["code"] > 0
    assert [path.name for path in Path(full["output"]).glob("stages/1-*/checkpoint-*")] == ["checkpoint-3"]


def test_several_processes_leave_what_one_leaves(in_two, tmp_path):
    in_two["evaluation"] = {"enabled": True, "speed": False, "retrieval_pairs": 10, "pairs": 10}
    one = elsewhere(in_two, tmp_path / "one")
    one["stages"][0]["training"]["per_device_train_batch_size"] = 8
    for processes in together(tmp_path, job("distil", 2, recipe=in_two), job("distil", 1, recipe=one)):
        assert all(process["code"] == 0 for process in processes), processes
    found, expected = (
        {str(path.relative_to(recipe["output"])) for path in Path(recipe["output"]).rglob("*") if path.is_file()}
        for recipe in (in_two, one)
    )
    assert found == expected
    record = json.loads((Path(in_two["output"]) / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["evaluation"]
    saved = load_file(str(Path(in_two["output"]) / "stages/1-minilmv2/model.safetensors"))
    assert not [name for name in saved if "teacher" in name]


def test_a_sharded_student_and_a_sharded_teacher_take_the_same_steps(tiny_recipe, tmp_path):
    tiny_recipe["student"]["dropout"] = 0.0
    training = {"max_steps": 12, "adam_epsilon": 1e-4, "save_steps": 4, "eval_steps": 6}
    tiny_recipe["stages"][0]["training"] |= training
    two = divided(tiny_recipe, tmp_path / "two", batch=4)
    sharded = divided(tiny_recipe, tmp_path / "sharded", batch=4)
    sharded["stages"][0]["training"]["fsdp"] = True
    sharded["teacher"]["sharded"] = True
    stopped = elsewhere(sharded, tmp_path / "stopped")
    one, plain, whole, interrupted, finished = together(
        tmp_path,
        job("distil", 1, recipe=tiny_recipe),
        job("distil", 2, recipe=two | {"teacher": sharded["teacher"]}),
        job("distil_sharded", 2, recipe=sharded, blocks=str(tmp_path / "blocks.json")),
        job("distil_sharded", 2, recipe=stopped, stop=5),
        job("distil_sharded", 2, recipe=stopped, resume=True),
    )
    for process in (*one, *plain, *whole, *finished):
        assert process["code"] == 0, process
    assert [process["code"] for process in interrupted] == [75, 75], interrupted
    whole_blocks = json.loads((tmp_path / "blocks.json").read_text())
    assert whole_blocks == []
    for other in (two, sharded, stopped):
        assert_same_trajectory(tiny_recipe, other)
    for key, tensor in weights(sharded).items():
        assert torch.equal(tensor, weights(stopped)[key]), key


def test_sharding_that_would_not_happen_is_refused(in_two, tmp_path):
    in_two["stages"][0]["training"]["fsdp"] = True
    (found,) = together(tmp_path, job("distil", 2, recipe=in_two))
    assert found[0]["said"].startswith("training.fsdp shards over several GPUs")
    assert found[1]["said"] == ""


def candidates(recipe, batch):
    """Three mappings of one recipe, without dropout, which several processes draw otherwise than one."""
    found = []
    for mapping in ([0, 2], [1, 4], [2, 3]):
        one = json.loads(json.dumps(recipe))
        one["student"]["dropout"] = 0.0
        one["stages"][0]["method"] = {"name": "hidden_states", "mapping": mapping}
        training = {"max_steps": 6, "max_grad_norm": 0.05, "adam_epsilon": 1e-4, "per_device_train_batch_size": batch}
        one["stages"][0]["training"] |= training
        found.append(one)
    return found


def test_students_under_one_teacher_learn_in_two_processes_as_in_one(tiny_recipe, tmp_path):
    ways = {"all": {}, "one is cut": {"cut": 1}, "one diverges": {"poisoned": 1}}
    jobs = []
    for way, what in ways.items():
        for count in (1, 2):
            recipes = candidates(tiny_recipe, 8 // count)
            jobs.append(job("train_candidates", count, recipes=recipes, output=f"{tmp_path}/{way}{count}", **what))
    for processes in together(tmp_path, *jobs):
        assert all(process["code"] == 0 for process in processes), processes
    for way in ways:
        one, two = (json.loads((tmp_path / f"{way}{count}.json").read_text()) for count in (1, 2))
        assert [found[:2] for found in one] == [found[:2] for found in two]
        for number, (mine, its) in enumerate(zip(one, two, strict=True)):
            assert its[2] == pytest.approx(mine[2], rel=1e-4)
            ours, theirs = (load_file(f"{tmp_path}/{way}{count}-{number}.safetensors") for count in (1, 2))
            for key, tensor in ours.items():
                torch.testing.assert_close(theirs[key], tensor, rtol=2e-5, atol=1e-5)
    assert [found[0] for found in json.loads((tmp_path / "one is cut2.json").read_text())] == [6, 2, 6]
    assert [found[1] for found in json.loads((tmp_path / "one diverges2.json").read_text())] == [False, True, False]


def test_a_search_on_tasks_is_refused_in_two(tiny_recipe, tmp_path):
    (found,) = together(
        tmp_path,
        job("search_layers", 2, recipe=candidates(tiny_recipe, 4)[0], output=str(tmp_path / "s"), tasks="sst2"),
    )
    assert found[0]["said"].startswith("--tasks are fine-tuned by one process")
    assert [process["code"] for process in found] == [2, 2]


def test_a_search_in_two_processes_finds_what_it_finds_in_one(tiny_recipe, tmp_path):
    jobs = [
        job("search_layers", count, recipe=candidates(tiny_recipe, 8 // count)[0], output=str(tmp_path / str(count)))
        for count in (1, 2)
    ]
    for processes in together(tmp_path, *jobs):
        assert all(process["code"] == 0 for process in processes), processes
    one, two = (json.loads((tmp_path / str(count) / "found.json").read_text()) for count in (1, 2))
    assert [row["mapping"] for row in two["candidates"]] == [row["mapping"] for row in one["candidates"]]
    fitness = [[row["fitness"] for row in record["candidates"]] for record in (one, two)]
    assert fitness[1] == pytest.approx(fitness[0], rel=1e-3)
