"""Silence of the libraries' logs and progress bars while a model is loaded, built or saved."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
from transformers.utils import logging as transformers_logging


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers', huggingface_hub's and sentence-transformers' logs, and the first's progress bars.

    The bars of downloads stay as they are: whoever has them on waits for gigabytes. The previous settings are put back
    at the end. Errors still raise.
    """
    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "sentence_transformers")]
    level, levels = transformers_logging.get_verbosity(), [logger.level for logger in loggers]
    bars, hub_bars = transformers_logging.is_progress_bar_enabled(), not are_progress_bars_disabled()
    transformers_logging.set_verbosity(logging.CRITICAL)
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    with warnings.catch_warnings(action="ignore"):  # That HF_HUB_DISABLE_PROGRESS_BARS has priority.
        transformers_logging.disable_progress_bar()
        if hub_bars:  # Switched off too by that.
            enable_progress_bars()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        for logger, before in zip(loggers, levels, strict=True):
            logger.setLevel(before)
        if bars and hub_bars:
            transformers_logging.enable_progress_bar()
