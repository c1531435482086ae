"""A stage's log on disk while it is trained, so that its course can be looked at before it ends."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from limbeck.core.files import write_atomically

LOG = "log.jsonl"


def log_lines(entries: Iterable[Mapping[str, Any]]) -> str:
    """Write what was logged as `log.jsonl` has it, a line an entry."""
    return "".join(json.dumps(entry, sort_keys=True) + "\n" for entry in entries)


class LastStepLog(TrainerCallback):
    """Has the last step of a stage logged too, so that one of fewer steps than `logging_steps` has a loss."""

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for a log; where this step is logged anyway, it is once."""
        if state.global_step >= state.max_steps:
            control.should_log = True


class LiveLog(TrainerCallback):
    """Adds every entry to `log.jsonl` as it is logged; the end of the stage writes the file whole.

    Args:
        folder: The stage's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        self._begun = False

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add the newest entry; at first write all, since an earlier process may have logged what is done again."""
        if not state.is_world_process_zero:
            return
        begun, self._begun = self._begun, False
        # No run fails for want of a log that its checkpoints have too; after a full disk all is written anew.
        with suppress(OSError):
            if begun:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(log_lines(state.log_history[-1:]))
            else:
                write_atomically(self._path, log_lines(state.log_history), durable=False)
            self._begun = True
