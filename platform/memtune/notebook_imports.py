"""What other libraries say about ipywidgets when a notebook imports them."""

import logging
import sys
import warnings
from importlib import import_module


def silence_widget_hints() -> None:
    """Import tqdm without its warning, and set Ray's log of missing widgets to warnings.

    Optuna and MLflow import `tqdm.auto`, which warns in a notebook without ipywidgets; Ray logs the same for
    its own displays. memtune shows none of these displays.
    """
    if "ipykernel" not in sys.modules:
        return
    logging.getLogger("ray.widgets.util").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        import_module("tqdm.auto")
