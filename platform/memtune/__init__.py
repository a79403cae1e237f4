"""memtune: search, on one machine or many, over language models with memory.

Every command is also a function here, loaded on first use::

    import memtune
    memtune.import_grammar("grammar")
    result = memtune.run_search("demo")
    result.best, result.to_frame()

`memtune search` is `run_search`, since `memtune.search` is a package. docs/python.md lists the functions.
"""

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    # `python -m memtune` has put the working folder first on the path: its modules are not memtune's to run.
    del sys.path[0]

from importlib import import_module
from typing import TYPE_CHECKING

from memtune.notebook_imports import silence_widget_hints

if TYPE_CHECKING:
    from memtune.api import run_search
    from memtune.corpora import (
        DataSet,
        Division,
        ImportOptions,
        TextFile,
        describe_corpus,
        find_splits,
        list_corpora,
        open_corpus,
        verify_corpus,
    )
    from memtune.corpora.grammar.embedded_corpus import import_grammar
    from memtune.errors import MemtuneError
    from memtune.reports.live.watched_calls import import_corpus, probe, train
    from memtune.reports.report_page.result_figures import draw_figures
    from memtune.results.comparison import compare, find_champions
    from memtune.results.loaded_models import GenerationOptions, generate, load, score
    from memtune.results.model_evaluation import evaluate_model as evaluate
    from memtune.results.study.scaling_laws import extrapolate_study
    from memtune.results.study.study_catalogue import compute_cost as study_cost
    from memtune.results.study.study_catalogue import list_studies
    from memtune.results.study.study_detail import show_study
    from memtune.settings import Settings
    from memtune.studies.definition.study import Study
    from memtune.studies.study_check import dry_run
    from memtune.tasks import CacheGrid, ContinuousCache
    from memtune.tracking import serve_pages

__all__ = [
    "CacheGrid",
    "ContinuousCache",
    "DataSet",
    "Division",
    "GenerationOptions",
    "ImportOptions",
    "MemtuneError",
    "Settings",
    "Study",
    "TextFile",
    "compare",
    "describe_corpus",
    "draw_figures",
    "dry_run",
    "evaluate",
    "extrapolate_study",
    "find_champions",
    "find_splits",
    "generate",
    "import_corpus",
    "import_grammar",
    "list_corpora",
    "list_studies",
    "load",
    "open_corpus",
    "probe",
    "run_search",
    "score",
    "serve_pages",
    "show_study",
    "study_cost",
    "train",
    "verify_corpus",
]

_MODULE_BY_NAME = {
    "CacheGrid": "memtune.tasks",
    "ContinuousCache": "memtune.tasks",
    "MemtuneError": "memtune.errors",
    "Settings": "memtune.settings",
    "Study": "memtune.studies.definition.study",
    "find_champions": "memtune.results.comparison",
    "compare": "memtune.results.comparison",
    "draw_figures": "memtune.reports.report_page.result_figures",
    "dry_run": "memtune.studies.study_check",
    "extrapolate_study": "memtune.results.study.scaling_laws",
    "evaluate": "memtune.results.model_evaluation",
    "generate": "memtune.results.loaded_models",
    "import_grammar": "memtune.corpora.grammar.embedded_corpus",
    "list_studies": "memtune.results.study.study_catalogue",
    "load": "memtune.results.loaded_models",
    "GenerationOptions": "memtune.results.loaded_models",
    "run_search": "memtune.api",
    "score": "memtune.results.loaded_models",
    "serve_pages": "memtune.tracking",
    "show_study": "memtune.results.study.study_detail",
    "study_cost": "memtune.results.study.study_catalogue",
    "import_corpus": "memtune.reports.live.watched_calls",
    "probe": "memtune.reports.live.watched_calls",
    "train": "memtune.reports.live.watched_calls",
}
"""Where a name is that is not in `memtune.corpora`."""
_NAME_IN_MODULE = {"evaluate": "evaluate_model", "study_cost": "compute_cost"}


# Before any other module of memtune, and so before the libraries whose hints it silences.
silence_widget_hints()


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    if name not in __all__:
        # With `obj`, Python suggests the nearest name of `__dir__`.
        raise AttributeError(
            f"module memtune has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        )
    return getattr(
        import_module(_MODULE_BY_NAME.get(name, "memtune.corpora")), _NAME_IN_MODULE.get(name, name)
    )
