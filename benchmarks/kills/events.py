"""What a job says while it lives: lines in a file, which are there whatever becomes of the process."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from optuna.study import Study
from optuna.trial import TrialState
from transformers import TrainerState, TrainingArguments
from transformers.trainer_callback import CallbackHandler

from limbeck.core.studies.evaluation import FINISHED
from limbeck.corpus.stored.stored_documents import SourceReader
from limbeck.corpus.tokens.token_encoder import TokenEncoder
from limbeck.evaluation.run.results_file import ResultsFile
from limbeck.targets.writer import StoreWriter
from limbeck.training.heartbeat import Heartbeat


class Event(NamedTuple):
    """Something that happened.

    Args:
        at: When, on the clock that all processes of a machine share.
        name: What.
        detail: More of it.
    """

    at: float
    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name} {self.detail}".strip()


class EventFile:
    """A file that several processes write events to.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(self, name: str, detail: str = "") -> None:
        """Write an event, in one call to the system, so that it is whole or not there."""
        os.write(self._descriptor, json.dumps([time.monotonic(), name, detail]).encode() + b"\n")


def read_events(path: Path) -> list[Event]:
    return [Event(*json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def watch(say: Callable[..., None]) -> None:
    """Have everything in this process, and in those that it forks, say how it gets on.

    Events: `activity` of a run, `documents` of a batch that was read, `tokens` of one that was encoded, `step` of any
    training, `cell` of an evaluation, `trial` of a search, `batch` of stored targets.
    """
    _after(Heartbeat, "begin", lambda _, activity, **_fields: say("activity", activity))
    _after(TokenEncoder, "encode", lambda *_: say("tokens"))
    _after(CallbackHandler, "on_step_end", lambda _, arguments, state, _control: say("step", _place(arguments, state)))
    _after(ResultsFile, "append", lambda _, cell: say("cell", cell.id) if cell.status == FINISHED else None)
    _after(StoreWriter, "add", lambda _, keys, _streams: say("batch", " ".join(map(str, keys))))
    _after(Study, "tell", lambda study, trial, *_, **_options: _say_trial(say, study, trial))
    batches = SourceReader.batches

    def noted(reader: SourceReader, *arguments: Any) -> Iterator[Any]:
        for batch in batches(reader, *arguments):
            say("documents")
            yield batch

    SourceReader.batches = noted


def _after(owner: type, name: str, note: Callable[..., None]) -> None:
    """Have a method followed by a note of its call."""
    method = getattr(owner, name)

    def noted(*arguments: Any, **options: Any) -> Any:
        result = method(*arguments, **options)
        note(*arguments, **options)
        return result

    setattr(owner, name, noted)


def _place(arguments: TrainingArguments, state: TrainerState) -> str:
    return f"{Path(arguments.output_dir).name}:{state.global_step}"


def _say_trial(say: Callable[..., None], study: Study, trial: Any) -> None:
    number = trial if isinstance(trial, int) else trial.number
    if study.get_trials(deepcopy=False)[number].state == TrialState.COMPLETE:
        say("trial", str(number))
