"""The JavaScript of Vega for pages without a network, bundled once per machine."""

import os
import stat
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import vl_convert

from memtune.corpora.store.node_cache import resolve_cache_folder
from memtune.values import digest

__all__ = ["load_vega"]

SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def load_vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as a script that an HTML page can hold.

    vl-convert bundles them in about 2 s, so the cache (MEMTUNE_CACHE) keeps the result. Without a writable
    cache each process bundles them again.
    """
    file = resolve_cache_folder() / "vega" / f"{digest(version('vl-convert-python'), SNIPPET)[:16]}.js"
    with suppress(OSError):
        if _is_own(file):
            return file.read_text(encoding="utf-8")
    bundle = str(vl_convert.javascript_bundle(SNIPPET))
    # An HTML parser ends a script at this text anywhere; within a JavaScript text both are equal.
    bundle = bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    with suppress(OSError):
        _store(bundle, file)
    return bundle


def _is_own(file: Path) -> bool:
    """Whether nobody else can have written a file: a cache may be shared, and pages run what it holds."""
    state = file.lstat()
    return stat.S_ISREG(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o022


def _store(bundle: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(f".{os.getpid()}")
    temporary.write_text(bundle, encoding="utf-8")
    temporary.chmod(0o644)
    temporary.replace(file)
