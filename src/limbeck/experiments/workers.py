"""Running jobs: one by one in this process, or in several processes, each with its share of cores and its own GPU."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from limbeck.core.workers import settle_worker, visible_device
from limbeck.experiments.attempt import Failure, Job, Outcome, attempt

Finished = Callable[[Job, str, Outcome], None]
"""Is given a job, the identity of one of its cells, and the outcome."""
Advance = Callable[[dict[str, float], Job], None]
"""Is told which share of each running job is done, by identity, and which job moved."""


def run_jobs(jobs: Sequence[Job], *, workers: int, finished: Finished, advance: Advance) -> None:
    """Run jobs; the outcome of each cell is handed over as soon as it is there.

    A Trainer that sees several GPUs would spread its batch over them, so on such a machine even a single worker has a
    process of its own.

    Args:
        jobs: In this order.
        workers: Processes; 1 runs them in this one.
        finished: Is given each outcome.
        advance: Is told how far the running jobs are.
    """
    if workers == 1 and torch.cuda.device_count() <= 1:
        for job in jobs:
            shares = {job.id: 0.0}

            def report(share: float, job: Job = job, shares: dict[str, float] = shares) -> None:
                shares[job.id] = share
                advance(shares, job)

            report(0.0)
            for identity, outcome in attempt(job, report):
                finished(job, identity, outcome)
        return
    if jobs:
        _Pool(jobs, min(workers, len(jobs)), finished, advance).run()


@dataclass
class _Worker:
    process: Any
    connection: Connection
    job: Job | None = None
    left: dict[str, None] = field(default_factory=dict)
    """Cells of the job without an outcome."""


class _Pool:
    """Processes that each run one job at a time; one that dies fails its job and is replaced."""

    def __init__(self, jobs: Sequence[Job], count: int, finished: Finished, advance: Advance) -> None:
        self._jobs = deque(jobs)
        self._count = count
        self._finished = finished
        self._advance = advance
        self._context = multiprocessing.get_context("spawn")
        self._shares: dict[str, float] = {}
        self._workers: list[_Worker] = []

    def run(self) -> None:
        try:
            self._workers = [self._start(index) for index in range(self._count)]
            while any(worker.job is not None for worker in self._workers):
                ready = wait([worker.connection for worker in self._workers if worker.job is not None])
                for index, worker in enumerate(self._workers):
                    if worker.connection in ready:
                        self._receive(index, worker)
        finally:
            for worker in self._workers:
                worker.process.terminate()
                worker.process.join()
                worker.connection.close()

    def _start(self, index: int) -> _Worker:
        ours, theirs = self._context.Pipe()
        arguments = (theirs, _threads(self._count), visible_device(index))
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self._hand_out(worker)
        return worker

    def _hand_out(self, worker: _Worker) -> None:
        worker.job = self._jobs.popleft() if self._jobs else None
        if worker.job is not None:
            self._shares[worker.job.id] = 0.0
            worker.left = dict.fromkeys(worker.job.cells)
            worker.connection.send(worker.job)

    def _receive(self, index: int, worker: _Worker) -> None:
        job = worker.job
        assert job is not None
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            worker.connection.close()
            for identity in list(worker.left):
                problem = f"Its process ended with code {worker.process.exitcode}; out of memory?"
                self._end(worker, job, identity, Failure(problem))
            if self._jobs:
                self._workers[index] = self._start(index)
            else:
                worker.job = None
            return
        if isinstance(message, float):
            self._shares[job.id] = message
            self._advance(self._shares, job)
            return
        self._end(worker, job, *message)
        if not worker.left:
            self._hand_out(worker)

    def _end(self, worker: _Worker, job: Job, identity: str, outcome: Outcome) -> None:
        del worker.left[identity]
        if not worker.left:
            self._shares.pop(job.id, None)
        self._finished(job, identity, outcome)


def _work(connection: Connection, threads: int, device: str | None) -> None:
    """Run the jobs that come in, until the other end closes."""
    settle_worker(threads, device)
    while True:
        try:
            job: Job = connection.recv()
        except EOFError:
            return
        for ended in attempt(job, lambda share: connection.send(float(share))):
            connection.send(ended)


def _threads(workers: int) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, torch.get_num_threads()) // workers)
