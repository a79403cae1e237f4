"""A small study of two families with repeats in a home of its own, for tests of its report."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memtune.api import run_search
from memtune.corpora import import_corpus
from memtune.settings import Settings
from memtune.studies.in_process_executor import InProcessExecutor
from tests.conftest import SENTENCES, SPACE_TOML

HOSTILE_QUESTION = "Is </script><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7 * 7 }} best?"
"""What a study file may contain: it must reach the page as text."""
RNN_TOML = SPACE_TOML.replace('"lstm"', '"rnn"').replace(
    "layers = { int = [1, 2] }", 'activation = { choice = ["relu", "sigmoid"] }'
)
STUDY_TOML = f"""question = "{HOSTILE_QUESTION}"

corpus = "tiny"
spaces = ["lstm.toml", "rnn.toml"]

[training]
tokens = 900
report_every = 300

[early_stopping]
kind = "successive_halving"
grace = 300
factor = 2

[prices]
cpu_hour = 1.0

[budget]
trials = 12

[repeats]
best = 2
seeds = 3
"""


@contextmanager
def run_reported_study(folder: Path) -> Iterator[Settings]:
    """Run the study "families" on the corpus "tiny"; its home is that of the block's environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MEMTUNE_STORE", "MEMTUNE_STUDIES", "MEMTUNE_PROPOSALS", "MLFLOW_TRACKING_URI"):
            patch.delenv(name, raising=False)
        patch.setenv("MEMTUNE_HOME", str(folder / "home"))
        patch.setenv("MEMTUNE_CACHE", str(folder / "cache"))
        settings = Settings.from_environment()
        texts = dict.fromkeys(("train", "valid", "test"), SENTENCES * 20)
        import_corpus("tiny", texts, settings.corpus_store)
        (folder / "lstm.toml").write_text(SPACE_TOML)
        (folder / "rnn.toml").write_text(RNN_TOML)
        (folder / "families.toml").write_text(STUDY_TOML)
        run_search(folder / "families.toml", settings=settings, executor=InProcessExecutor())
        yield settings
