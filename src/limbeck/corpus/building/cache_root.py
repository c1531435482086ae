"""The root of the cache of corpora."""

from pathlib import Path

from limbeck.core.paths import default_cache_dir


def cache_root(named: str | Path | None) -> Path:
    """Return the folder that is named, or else the default, `$LIMBECK_CACHE` or `~/.cache/limbeck`."""
    if named is None:
        return default_cache_dir()
    return Path(named).expanduser()
