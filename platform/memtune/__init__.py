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
    # The one list of public names. `as` exports them to type checkers, and `_list_places` reads it.
    from memtune.api import import_corpus as import_corpus
    from memtune.api import judge as judge
    from memtune.api import probe as probe
    from memtune.api import run_search as run_search
    from memtune.api import train as train
    from memtune.corpora import DataSet as DataSet
    from memtune.corpora import Division as Division
    from memtune.corpora import ImportOptions as ImportOptions
    from memtune.corpora import TextFile as TextFile
    from memtune.corpora import describe_corpus as describe_corpus
    from memtune.corpora import find_splits as find_splits
    from memtune.corpora import list_corpora as list_corpora
    from memtune.corpora import open_corpus as open_corpus
    from memtune.corpora import verify_corpus as verify_corpus
    from memtune.corpora.grammar.embedded_corpus import import_grammar as import_grammar
    from memtune.errors import MemtuneError as MemtuneError
    from memtune.experiments.ask_tell import ask as ask
    from memtune.experiments.ask_tell import list_open_trials as list_open_trials
    from memtune.experiments.ask_tell import tell as tell
    from memtune.reports.report_page.result_figures import draw_figures as draw_figures
    from memtune.results.comparison import compare as compare
    from memtune.results.comparison import find_champions as find_champions
    from memtune.results.loaded_models import GenerationOptions as GenerationOptions
    from memtune.results.loaded_models import generate as generate
    from memtune.results.loaded_models import load as load
    from memtune.results.loaded_models import score as score
    from memtune.results.model_evaluation import evaluate as evaluate
    from memtune.results.registration import export_model as export_model
    from memtune.results.study.scaling_laws import extrapolate_study as extrapolate_study
    from memtune.results.study.study_catalogue import list_studies as list_studies
    from memtune.results.study.study_catalogue import study_cost as study_cost
    from memtune.results.study.study_detail import show_study as show_study
    from memtune.settings import Settings as Settings
    from memtune.studies.definition.study import Study as Study
    from memtune.studies.study_check import dry_run as dry_run
    from memtune.tasks import CacheGrid as CacheGrid
    from memtune.tasks import ContinuousCache as ContinuousCache
    from memtune.tracking import serve_pages as serve_pages

_places: dict[str, str] = {}


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


def _list_places() -> dict[str, str]:
    """The module of each public name: of each import with `as` in this file."""
    if not _places:
        # Imported here: it loads for 5 ms.
        import ast

        with open(__file__, encoding="utf-8") as file:
            imports = [node for node in ast.walk(ast.parse(file.read())) if isinstance(node, ast.ImportFrom)]
        _places.update(
            {each.asname: str(node.module) for node in imports for each in node.names if each.asname}
        )
    return _places


def __dir__() -> list[str]:
    return sorted(_list_places())


if not TYPE_CHECKING:  # which would take any name for one of the module

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return __dir__()
        if name not in _list_places():
            # With `obj`, Python suggests the nearest name of `__dir__`.
            raise AttributeError(
                f"module memtune has no attribute {name!r}", name=name, obj=sys.modules[__name__]
            )
        return getattr(import_module(_places[name]), name)
