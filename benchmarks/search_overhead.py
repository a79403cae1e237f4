"""What a search costs beside its training: wall time x workers over the seconds its trials trained.

A real study on the embedded corpus with two workers of one core, halving off so that every trial trains its
budget. The seconds of a trial are those its learner measured, evaluations and checkpoints' states included;
everything else (Ray's start, scheduling, sampling, records, an idle worker at the end) is overhead. Gated:
every trial must have ended in order with its whole curve.

    python -m benchmarks.search_overhead
"""

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.side_by_side import line
from memtune.corpora.grammar import import_grammar
from memtune.execution.search import search
from memtune.execution.settings import Settings
from memtune.tracking import leaderboard
from memtune.tracking.connection import connect

WORKERS = 2
GOAL = 1.15
MUST = 1.30
STUDY = """question = "What does a search cost beside its training?"

corpus = "grammar"
spaces = ["lstm.toml"]

[protocol]
kind = "sentence"
batch_size = 32

[training]
tokens = {tokens}
report_every = {report_every}

[sampler]
kind = "random"

[budget]
trials = {trials}

[resources]
max_concurrent = 2
"""
SPACE = """
[model]
family = "lstm"
width = 64

[training.optimiser]
kind = "adam"
learning_rate = { float = [1e-3, 1e-2], log = true }
"""


def run(folder: Path, trials: int, tokens: int) -> tuple[float, list[float]]:
    """(wall seconds of the search, training seconds of each trial)."""
    settings = Settings.read(folder / "home")
    import_grammar("grammar", settings.store)
    (folder / "lstm.toml").write_text(SPACE)
    study = folder / "overhead.toml"
    study.write_text(STUDY.format(trials=trials, tokens=tokens, report_every=tokens // 2))
    began = time.perf_counter()
    search(study, settings=settings)
    wall = time.perf_counter() - began
    client = connect(settings.tracking)
    rows = leaderboard(settings.tracking, "grammar")
    if len(rows) != trials or any(row.state != "finished" or row.tokens < tokens for row in rows):
        raise SystemExit("refused: not every trial ended in order with its whole curve")
    seconds = [client.get_metric_history(row.run_id, "seconds")[-1].value for row in rows]
    return wall, seconds


def main(trials: str = "8", tokens: str = "800000") -> None:
    """Print the ratio; lower is better, 1 is a search that costs nothing."""
    with tempfile.TemporaryDirectory(prefix="memtune-overhead-") as folder:
        wall, seconds = run(Path(folder), int(trials), int(tokens))
    ratio = wall * WORKERS / sum(seconds)
    name = f"search wall time x {WORKERS} workers / training time"
    detail = f"{wall:.1f} s for {sum(seconds):.1f} s of {len(seconds)} trials"
    print(line(name, ratio, GOAL, MUST, at_most=True, detail=detail))


if __name__ == "__main__":
    main(*sys.argv[1:])
