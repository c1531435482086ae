"""Silence of the libraries' logs and progress bars while a model is loaded, built or saved."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
from transformers.utils import logging as transformers_logging


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the logs of transformers, huggingface_hub and sentence-transformers, and transformers' progress bars.

    The progress bars of downloads stay as they are, since a user may be waiting for gigabytes. The previous settings
    are restored at the end. Errors still raise.
    """
    verbosity = transformers_logging.get_verbosity()
    had_bars = transformers_logging.is_progress_bar_enabled()
    had_hub_bars = not are_progress_bars_disabled()
    level_of_logger = {}
    for name in ("huggingface_hub", "sentence_transformers"):
        logger = logging.getLogger(name)
        level_of_logger[logger] = logger.level

    transformers_logging.set_verbosity(logging.CRITICAL)
    for logger in level_of_logger:
        logger.setLevel(logging.CRITICAL)
    # Both calls warn where the variable HF_HUB_DISABLE_PROGRESS_BARS takes precedence.
    with warnings.catch_warnings(action="ignore"):
        # This switches off the bars of downloads too, so these are switched on again.
        transformers_logging.disable_progress_bar()
        if had_hub_bars:
            enable_progress_bars()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        for logger, level in level_of_logger.items():
            logger.setLevel(level)
        # This switches on the bars of downloads too, so it is done only if these were on before.
        if had_bars and had_hub_bars:
            transformers_logging.enable_progress_bar()
