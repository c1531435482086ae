"""Jobs in several forked processes, as a launcher runs them: imports are paid once."""

import os
import signal
import socket
import time
import traceback
import warnings
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from accelerate.state import AcceleratorState
from rich.console import Console

import limbeck
from limbeck.errors import LimbeckError


def fork(job):
    """Do a job in a process, which ends with the code of its error; return the process's id."""
    child = os.fork()
    if child:
        return child
    # PyTorch leaves its parent's threads at its first use of threads; two threads that come to it at once would fail.
    torch.set_num_threads(1)
    warnings.resetwarnings()
    AcceleratorState._reset_state(reset_partial_state=True)
    code = 70
    try:
        job()
        code = 0
    except LimbeckError as error:
        code = error.exit_code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def together(processes, job):
    """Do `job(index, console)` in each of several processes; return how each ended: its code and its error."""
    with TemporaryDirectory() as folder:
        said = [Path(folder, str(index)) for index in range(processes)]
        port = _free_port()
        codes = _wait([fork(lambda index=index: _take_part(job, index, port, said)) for index in range(processes)])
        return [(code, path.read_text()) for code, path in zip(codes, said, strict=True)]


def distil(recipe, processes=2, *, codes=0, resume=False, disturbed=nullcontext, rank=0):
    """Distil in processes that end with a code each, or all with one; one rank does it in a context. Return errors."""

    def job(index, console):
        with disturbed() if index == rank else nullcontext():
            limbeck.distill(recipe, resume=resume, console=console)

    ended = together(processes, job)
    assert [code for code, _ in ended] == (codes if isinstance(codes, list) else [codes] * processes), ended
    return [said for _, said in ended]


def _take_part(job, index, port, said):
    if len(said) > 1:
        ranks = {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": len(said), "LOCAL_WORLD_SIZE": len(said)}
        os.environ |= {name: str(value) for name, value in (ranks | {"MASTER_PORT": port}).items()}
        os.environ["MASTER_ADDR"] = "127.0.0.1"
    said[index].touch()
    try:
        job(index, Console(quiet=True))
    except BaseException as error:
        line = str(error) if isinstance(error, LimbeckError) else f"{type(error).__name__}: {error}"
        said[index].write_text("" if getattr(error, "printed_by_other_rank", False) else line)
        raise


def _free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _wait(children):
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
