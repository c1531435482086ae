"""A script that runs jobs in several processes each, as a launcher does; prints how each process ended.

    python -m tests.support.together JOBS.json

A job names a function of this file, its arguments and how many processes run it. Processes are forked, so that the
imports are paid once. Every job ends with a line of JSON: a list of the processes' exit codes and errors.
"""

import gc
import json
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console

from limbeck.errors import LimbeckError
from tests.support import together_jobs


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run(job, index, said):
    torch.set_num_threads(1)
    try:
        with said.open("w") as out:
            getattr(together_jobs, job["job"])(index=index, console=Console(file=out), **job["arguments"])
    except LimbeckError as error:
        said.write_text("" if error.printed_by_other_rank else str(error))
        os._exit(error.exit_code)
    except BaseException as error:
        said.write_text(f"{type(error).__name__}: {error}")
        os._exit(70)
    os._exit(0)


def start(job, index, count, port, said):
    child = os.fork()
    if child == 0:
        if count > 1:
            os.environ |= {"RANK": str(index), "LOCAL_RANK": str(index), "WORLD_SIZE": str(count)}
            os.environ |= {"LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        run(job, index, said)
    return child


def wait(children):
    """As a launcher does: when one fails, the others are stopped, after some time."""
    codes, failed = {}, None
    while len(codes) < len(children):
        for index, child in enumerate(children):
            if index not in codes and (found := os.waitpid(child, os.WNOHANG))[0]:
                codes[index] = os.waitstatus_to_exitcode(found[1])
                failed = failed or (time.monotonic() if codes[index] else None)
        if failed and time.monotonic() - failed > 20:
            for index, child in enumerate(children):
                if index not in codes:
                    os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return [codes[index] for index in range(len(children))]


def main():
    for job in json.loads(Path(sys.argv[1]).read_text()):
        with tempfile.TemporaryDirectory() as folder:
            said = [Path(folder) / str(index) for index in range(job["processes"])]
            port = free_port()
            children = [start(job, index, job["processes"], port, path) for index, path in enumerate(said)]
            codes = wait(children)
            texts = [path.read_text() if path.exists() else "" for path in said]
            print(
                json.dumps([{"code": code, "said": text} for code, text in zip(codes, texts, strict=True)]), flush=True
            )


if __name__ == "__main__":
    gc.freeze()  # Trainings collect garbage: forked processes would look at all that was imported, and copy it.
    main()
    gc.unfreeze()
