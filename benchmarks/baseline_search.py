"""The trials of `search_overhead` with Ray Tune, Optuna and MLflow connected as in their guides.

`search_overhead` compares memtune with this search. It uses Tune's Optuna searcher, Tune's MLflow callback, a
Trainable, reused actors and a checkpoint after each report. Both searches train with memtune's trainer, so
that only the overhead differs. This search does not resume, detect orphaned trials or record a corpus.

    python -m benchmarks.baseline_search STORE TRIALS TOKENS WORKERS
"""

import json
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune.search.optuna import OptunaSearch

from memtune.corpora import open_corpus
from memtune.training import TrialConfig, create_trainer


class BaselineTrial(tune.Trainable):
    """One trial; each step returns a report and is followed by a checkpoint."""

    def setup(self, config: dict[str, Any]) -> None:
        """Create the trainer."""
        training = {
            "tokens": config["tokens"],
            "report_every": config["tokens"] // 2,
            "optimiser": {"kind": "adam", "learning_rate": config["learning_rate"]},
        }
        trial = TrialConfig.model_validate(
            {
                "model": {"family": "lstm", "width": 64},
                "protocol": {"kind": "sentence", "batch_size": 32},
                "training": training,
            }
        )
        self._trainer = create_trainer(trial, open_corpus("grammar", config["store"]))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start the next trial in this process."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train to the next report."""
        report = self._trainer.advance()
        return {
            "perplexity": report.valid_perplexity,
            "train_loss": report.train_loss,
            "trained": report.seconds,
            "done": self._trainer.is_finished,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the trainer's files, which Tune stores."""
        self._trainer.save(Path(checkpoint_dir))


def main(store: str, trials: str, tokens: str, workers: str) -> None:
    """Print the wall seconds of the search and the training seconds of its trials, as JSON."""
    with tempfile.TemporaryDirectory(prefix="plain-wiring-") as folder:
        start = time.perf_counter()
        ray.init("local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        space = {"learning_rate": tune.loguniform(1e-3, 1e-2), "tokens": int(tokens), "store": store}
        tracking = MLflowLoggerCallback(
            tracking_uri=f"sqlite:///{folder}/mlflow.db", experiment_name="grammar"
        )
        results = tune.Tuner(
            tune.with_resources(BaselineTrial, {"cpu": 1}),
            param_space=space,
            tune_config=tune.TuneConfig(
                metric="perplexity",
                mode="min",
                search_alg=OptunaSearch(),
                num_samples=int(trials),
                max_concurrent_trials=int(workers),
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name="plain",
                storage_path=folder,
                callbacks=[tracking],
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
                verbose=0,
            ),
        ).fit()
        ray.shutdown()
        wall = time.perf_counter() - start
        found = [results[number].metrics for number in range(len(results))]
        metrics = [last for last in found if last is not None]
        if results.errors or len(metrics) != int(trials):
            raise SystemExit("no result: a trial failed or is missing")
        print(json.dumps([wall, [last["trained"] for last in metrics]]))


if __name__ == "__main__":
    main(*sys.argv[1:])
