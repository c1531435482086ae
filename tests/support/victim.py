"""A script that runs a recipe to its end while it is killed again and again; prints how often.

    python -m tests.support.victim RECIPE.json SEED KILLS SECONDS OPERATIONS

Every attempt is a process of its own that resumes the run. The first ones die by SIGKILL, in turn after a random time
of up to so many seconds, and at a random one of their first so many file operations, before or after it is done. The
last one may run to its end. Processes are forked, so that the imports are paid once.
"""

import gc
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

import limbeck.api


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_file_operation(number, after):
    """Let this process die at its n-th file operation of those that checkpoints and records are made of."""
    left = [number]

    def deadly(function):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] == 0 and not after:
                die()
            result = function(*arguments, **options)
            if left[0] == 0:
                die()
            return result

        return call

    os.fsync = deadly(os.fsync)
    Path.rename = deadly(Path.rename)
    Path.replace = deadly(Path.replace)
    Path.unlink = deadly(Path.unlink)
    shutil.rmtree = deadly(shutil.rmtree)
    torch.save = deadly(torch.save)


def attempt(recipe, prepare):
    """Resume the run in a process of its own; returns its id."""
    child = os.fork()
    if child == 0:
        try:
            prepare()
            limbeck.api.distill(recipe, resume=True)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return child


def main():
    path, *numbers = sys.argv[1:]
    seed, kills, seconds, operations = map(float, numbers)
    recipe, dice, died = json.loads(Path(path).read_text()), random.Random(int(seed)), 0
    torch.set_num_threads(1)
    while True:
        by_time, by_file = died < kills and died % 2 == 0, died < kills and died % 2 == 1
        deadline = time.monotonic() + (dice.uniform(0, seconds) if by_time else 3600)
        number, after = dice.randint(1, int(operations)) if by_file else 0, dice.random() < 0.5
        child = attempt(recipe, lambda number=number, after=after: die_at_file_operation(number, after))
        while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.002)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            print(json.dumps({"kills": died, "exit": os.WEXITSTATUS(status)}))
            return
        died += 1


if __name__ == "__main__":
    gc.freeze()  # Trainings collect garbage: forked processes would look at all that was imported, and copy it.
    main()
    gc.unfreeze()
