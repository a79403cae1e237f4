"""Trial files, each trained under several seeds: validation and test figures with their spread, as a table.

The weights of each seed's best validation report are the ones evaluated. Nothing is recorded or registered;
a corpus is that of the file, in the store that MEMTUNE_HOME or MEMTUNE_STORE names.

python jobs/seeds.py 0,1,2 jobs/trials/cheng2016_sst_lstm.toml jobs/trials/cheng2016_sst_lstmn.toml
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from memtune.cli import run_script
from memtune.corpora import open_corpus
from memtune.execution.settings import Settings
from memtune.execution.single import TrialFile, load_trial
from memtune.objective import figure
from memtune.training import Learner, evaluate, load_best_model


def figures(file: TrialFile) -> tuple[float, float, float]:
    """Epochs at the best report, and the figures of validation and test there; an accuracy in per cent."""
    corpus = open_corpus(file.corpus, Settings.read().store)
    learner = Learner(file.trial, corpus)
    while not learner.finished:
        learner.advance()
    best, task = learner.best, file.trial.task
    assert best is not None, learner.curve[-1].reason
    with TemporaryDirectory() as folder:
        learner.save(Path(folder) / "trial")
        model = load_best_model(Path(folder) / "trial")
    test = evaluate(model, corpus, file.trial.protocol, "test", task=task)
    scale = 100 if task.objective == "accuracy" else 1
    valid = figure(task.objective, best.cost or 0.0)
    return best.epoch, scale * valid, scale * figure(task.objective, test.cost(task.objective))


def row(path: Path, seeds: Sequence[int]) -> str:
    """A line of the table."""
    files = [load_trial(path, {"seed": seed}) for seed in seeds]
    corpus = open_corpus(files[0].corpus, Settings.read().store)
    epochs, valid, test = zip(*(figures(file) for file in files), strict=True)
    cells = [
        path.stem,
        f"{files[0].trial.parameter_count(len(corpus.vocabulary)):,}",
        " ".join(f"{epoch:.0f}" for epoch in epochs),
        *(cell for values in (valid, test) for cell in spread(values)),
    ]
    return f"| {' | '.join(cells)} |"


def spread(values: Sequence[float]) -> list[str]:
    """Every value, and their mean with the standard deviation."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    every = " ".join(f"{value:.2f}" for value in values)
    return [every, f"{statistics.mean(values):.2f} ± {deviation:.2f}"]


def main(seeds: str, files: list[Path]) -> None:
    """Print the table, a line as soon as it is there."""
    torch.set_num_threads(1)
    print("| trial | parameters | best epoch | validation by seed | mean | test by seed | mean |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for path in files:
        print(row(path, [int(seed) for seed in seeds.split(",")]), flush=True)


if __name__ == "__main__":
    run_script(main)
