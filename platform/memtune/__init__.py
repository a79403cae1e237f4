"""memtune: search, on one machine or many, over language models with memory.

Whatever the command line does is a function here, loaded on first use::

    import memtune
    memtune.import_grammar("grammar", ".memtune/corpora")
    memtune.run_search("jobs/studies/demo.toml")
    memtune.compare("grammar").rows[0]

`memtune search` is `run_search`, since `memtune.search` is a package.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memtune.corpora import describe_corpus, import_corpus, list_corpora, open_corpus, verify_corpus
    from memtune.corpora.grammar import import_grammar
    from memtune.execution.champions import evaluate_registered as evaluate
    from memtune.execution.comparison import champions, compare
    from memtune.execution.search import dry_run
    from memtune.execution.search import search as run_search
    from memtune.execution.settings import Settings
    from memtune.execution.single import train
    from memtune.tasks import CacheGrid, ContinuousCache
    from memtune.tracking import load_registered, serve_pages

__all__ = [
    "CacheGrid",
    "ContinuousCache",
    "Settings",
    "champions",
    "compare",
    "describe_corpus",
    "dry_run",
    "evaluate",
    "import_corpus",
    "import_grammar",
    "list_corpora",
    "load_registered",
    "open_corpus",
    "run_search",
    "serve_pages",
    "train",
    "verify_corpus",
]

_HOMES = {
    "CacheGrid": "memtune.tasks",
    "ContinuousCache": "memtune.tasks",
    "Settings": "memtune.execution.settings",
    "champions": "memtune.execution.comparison",
    "compare": "memtune.execution.comparison",
    "dry_run": "memtune.execution.search",
    "evaluate": "memtune.execution.champions",
    "import_grammar": "memtune.corpora.grammar",
    "load_registered": "memtune.tracking",
    "run_search": "memtune.execution.search",
    "serve_pages": "memtune.tracking",
    "train": "memtune.execution.single",
}
_NAMES = {"evaluate": "evaluate_registered", "run_search": "search"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module memtune has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "memtune.corpora")), _NAMES.get(name, name))
