"""A scheduler of Syne Tune behind standard input and output: one JSON document per line and answer.

Runs in an environment of its own, because Syne Tune needs older versions of numpy and scipy, and imports
nothing but Syne Tune. The first line is {"method", "seed", "reports", "parameters"}; later lines are
{"start": number} and {"report": number, "cost": c, "count": n}; `null` ends the process.
"""

import datetime
import json
import logging
import sys
import warnings

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

from syne_tune import config_space as cs  # noqa: E402
from syne_tune.backend.trial_status import Trial  # noqa: E402
from syne_tune.optimizer.legacy_baselines import ASHA, MOBSTER  # noqa: E402
from syne_tune.optimizer.scheduler import SchedulerDecision  # noqa: E402

METRIC, REPORTS, MAX_REPORTS = "cost", "count", "reports"
MOBSTER_OPTIONS = {
    "max_size_data_for_model": 200,
    "opt_skip_init_length": 50,
    "opt_skip_period": 10,
    "opt_maxiter": 20,
}
"""Less data and fewer fits of the Gaussian process than by default, with which a run takes many minutes."""


def make_domain(parameter):
    """The domain of a parameter that `syne_tune_search` describes."""
    if "choices" in parameter:
        return cs.choice(parameter["choices"])
    low, high = parameter["low"], parameter["high"]
    if parameter["step"]:
        size = round((high - low) / parameter["step"]) + 1
        return cs.finrange(low, high, size, cast_int=parameter["is_int"])
    if parameter["is_int"]:
        return (cs.lograndint if parameter["log"] else cs.randint)(low, high)
    return (cs.loguniform if parameter["log"] else cs.uniform)(low, high)


def make_scheduler(request):
    """The scheduler of the first line."""
    space = {name: make_domain(parameter) for name, parameter in request["parameters"].items()}
    space[MAX_REPORTS] = request["reports"]
    name, _, kind = request["method"].partition("-")
    return {"asha": ASHA, "mobster": MOBSTER}[name](
        space,
        metric=METRIC,
        mode="min",
        resource_attr=REPORTS,
        max_resource_attr=MAX_REPORTS,
        type=kind,
        grace_period=1,
        reduction_factor=3,
        random_seed=request["seed"],
        search_options={"debug_log": False, **(MOBSTER_OPTIONS if name == "mobster" else {})},
    )


def convert_to_plain(value):
    """A value without numpy's types."""
    return value.item() if hasattr(value, "item") else value


class Server:
    """Answers requests with one scheduler."""

    def __init__(self, scheduler):
        self._scheduler, self._trials = scheduler, {}

    def start(self):
        """A new trial, or a paused one."""
        suggestion = self._scheduler.suggest(len(self._trials))
        if suggestion is None:
            return None
        if not suggestion.spawn_new_trial_id:
            return {"number": int(suggestion.checkpoint_trial_id)}
        number = len(self._trials)
        config = {name: convert_to_plain(value) for name, value in suggestion.config.items()}
        self._trials[number] = Trial(number, config, datetime.datetime(2000, 1, 1))
        self._scheduler.on_trial_add(self._trials[number])
        return {"number": number, "parameters": config}

    def report(self, number, cost, count):
        """Whether the trial continues."""
        result, trial = {METRIC: cost, REPORTS: count}, self._trials[number]
        decision = self._scheduler.on_trial_result(trial, result)
        if count == self._trials[number].config[MAX_REPORTS]:
            self._scheduler.on_trial_complete(trial, result)
            return False
        return decision == SchedulerDecision.CONTINUE


def main():
    answers = sys.stdout
    sys.stdout = sys.stderr  # Syne Tune prints
    server = Server(make_scheduler(json.loads(sys.stdin.readline())))
    for line in sys.stdin:
        request = json.loads(line)
        if request is None:
            return
        answer = server.start() if "start" in request else server.report(**request)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
