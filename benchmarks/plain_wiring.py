"""The same trials with Ray Tune, Optuna and MLflow wired together by hand, as their guides show it.

What `search_overhead` compares memtune with: Tune's Optuna searcher, Tune's MLflow callback, a class that
trains, workers that are used again, a checkpoint after each report. The training itself is memtune's own, so
that only what is around it differs. Nothing here resumes, tells orphans from trials or knows a corpus.

    python -m benchmarks.plain_wiring STORE TRIALS TOKENS WORKERS
"""

import json
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
from memtune.training import TrialConfig, new_learner


class PlainTrial(tune.Trainable):
    """One trial: a configuration in, a report and a checkpoint a step out."""

    def setup(self, config: dict[str, Any]) -> None:
        """Build the learner."""
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
        self._learner = new_learner(trial, open_corpus("grammar", config["store"]))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """The next trial in the same process."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train to the next report."""
        report = self._learner.advance()
        return {
            "perplexity": report.valid_perplexity,
            "train_loss": report.train_loss,
            "trained": report.seconds,
            "done": self._learner.finished,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """The learner's files, kept by Tune."""
        self._learner.save(Path(checkpoint_dir))


def main(store: str, trials: str, tokens: str, workers: str) -> None:
    """Print the wall seconds of the search and the training seconds of its trials, as JSON."""
    with tempfile.TemporaryDirectory(prefix="plain-wiring-") as folder:
        began = time.perf_counter()
        ray.init("local", include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        space = {"learning_rate": tune.loguniform(1e-3, 1e-2), "tokens": int(tokens), "store": store}
        tracking = MLflowLoggerCallback(
            tracking_uri=f"sqlite:///{folder}/mlflow.db", experiment_name="grammar"
        )
        results = tune.Tuner(
            tune.with_resources(PlainTrial, {"cpu": 1}),
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
        wall = time.perf_counter() - began
        if results.errors or len(results) != int(trials):
            raise SystemExit("refused: not every trial ended in order")
        print(json.dumps([wall, [result.metrics["trained"] for result in results]]))


if __name__ == "__main__":
    main(*sys.argv[1:])
