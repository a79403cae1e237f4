"""memtune: search, on one machine or many, over language models with memory.

The main commands are also functions here, loaded on first use::

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

TYPE_CHECKING = False  # as in `typing`, which loads for a while
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
    from memtune.reports.live.watched_calls import import_corpus, judge, probe, train
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

_NAMES_BY_MODULE = {
    "memtune.api": ("run_search",),
    "memtune.corpora": (
        *("DataSet", "Division", "ImportOptions", "TextFile"),
        *("describe_corpus", "find_splits", "list_corpora", "open_corpus", "verify_corpus"),
    ),
    "memtune.corpora.grammar.embedded_corpus": ("import_grammar",),
    "memtune.errors": ("MemtuneError",),
    "memtune.reports.live.watched_calls": ("import_corpus", "judge", "probe", "train"),
    "memtune.reports.report_page.result_figures": ("draw_figures",),
    "memtune.results.comparison": ("compare", "find_champions"),
    "memtune.results.loaded_models": ("GenerationOptions", "generate", "load", "score"),
    "memtune.results.model_evaluation": ("evaluate_model",),
    "memtune.results.study.scaling_laws": ("extrapolate_study",),
    "memtune.results.study.study_catalogue": ("compute_cost", "list_studies"),
    "memtune.results.study.study_detail": ("show_study",),
    "memtune.settings": ("Settings",),
    "memtune.studies.definition.study": ("Study",),
    "memtune.studies.study_check": ("dry_run",),
    "memtune.tasks": ("CacheGrid", "ContinuousCache"),
    "memtune.tracking": ("serve_pages",),
}
_SHORT_NAMES = {"evaluate_model": "evaluate", "compute_cost": "study_cost"}
_PLACES = {
    _SHORT_NAMES.get(name, name): (module, name)
    for module, names in _NAMES_BY_MODULE.items()
    for name in names
}
__all__ = sorted(_PLACES)


def _silence_widget_hints() -> None:
    """Import tqdm without its warning, and set Ray's log of missing widgets to warnings.

    Optuna and MLflow import `tqdm.auto`, which warns in a notebook without ipywidgets; Ray logs the same for
    its own displays. memtune shows none of these displays.
    """
    if "ipykernel" not in sys.modules:
        return
    # Imported here: elsewhere than in a notebook, they would delay the handlers of `cli.main` by 20 ms.
    import logging
    import warnings

    logging.getLogger("ray.widgets.util").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        import_module("tqdm.auto")


# Before any other module of memtune, and so before the libraries whose hints it silences.
_silence_widget_hints()


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        # With `obj`, Python suggests the nearest name of `__dir__`.
        raise AttributeError(
            f"module memtune has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        )
    module, own_name = _PLACES[name]
    return getattr(import_module(module), own_name)
