"""Whether one configuration is better than another: both trained under equal seeds until that is decided.

The rounds of seeds and their test are those of a study's `until = "decided"`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from memtune.corpora.probes.probe_corpora import open_or_draw_corpus
from memtune.errors import CheckpointError, StudyError
from memtune.experiments.single_trial import TrainResult, TrialFile, TrialSource, open_trial
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.results.loaded_models import open_model
from memtune.results.study.study_view import open_view
from memtune.search import StudyReader
from memtune.seed_statistics import (
    MAX_SEEDS,
    Estimate,
    PairedTest,
    SeedCosts,
    SeedDecision,
    compare_results,
    decide_seeds,
    estimate_cost,
)
from memtune.settings import Settings
from memtune.studies.definition.study_terms import Repeats
from memtune.tracking import NO_STUDY, find_trial_run, is_trial_name
from memtune.values import Value

JudgedOutcome = Literal["better", "worse", "equal", "undecided", "same configuration"]


class Judged(NamedTuple):
    """A configuration with the names of it and of its runs, which are those of `memtune train`."""

    name: str
    file: TrialFile
    run_name: str


class Judgement(Value):
    """The answer of `memtune judge`."""

    baseline: str
    candidate: str
    outcome: JudgedOutcome
    """Of the candidate against the baseline."""
    text: str
    """The answer in a sentence."""
    objective: Objective
    estimates: dict[str, Estimate]
    """Of those with results: the mean cost over the trained seeds; all intervals hold at once."""
    test: PairedTest | None = None
    """The candidate minus the baseline; None where too few seeds have a result."""
    decision: SeedDecision | None = None
    """None where nothing had to be trained."""
    tokens: int = 0
    """Trained under all seeds; without those of trainings from before."""
    cpu_hours: float = 0.0
    """Cores reserved for these tokens times hours."""
    gpu_hours: float = 0.0


def open_judged(source: TrialSource, settings: Settings, *, trust_code: bool) -> Judged:
    """A configuration with its name: of a trial's file, of a trial by its name, or of a registered model."""
    if isinstance(source, str) and (source.startswith("models:/") or is_trial_name(source)):
        try:
            opened = open_model(source, settings, trust_code=trust_code)
        except CheckpointError:
            # The weights of most trials are removed, and only the configuration is needed.
            if (stored := _find_stored_trial(source, settings)) is None:
                raise
            return Judged(source, stored, source)
        return Judged(source, TrialFile(corpus=opened.corpus.name, trial=opened.config), source)
    run_name, file = open_trial(source, None)
    return Judged(run_name if isinstance(source, Mapping) else str(source), file, run_name)


def _find_stored_trial(name: str, settings: Settings) -> TrialFile | None:
    """The configuration of a trial of a stored study; None for another name."""
    if not is_trial_name(name) or (run := find_trial_run(settings.tracking_uri, name)).study == NO_STUDY:
        return None
    view = open_view(run.study, settings)
    found = [outcome.config for outcome in view.stored.trials if outcome.identity == run.trial]
    return TrialFile(corpus=view.terms.corpus, trial=found[0]) if found else None


def judge_configurations(
    baseline: Judged,
    candidate: Judged,
    terms: Repeats,
    settings: Settings,
    train: Callable[[TrialFile, str], TrainResult],
) -> Judgement:
    """Train both under the same new seeds until one is better, both are equal, or no seed is left.

    `train` records a configuration under a name. Raises StudyError where their figures do not compare:
    another corpus, protocol, task or length.
    """
    names, files = (baseline.name, candidate.name), (baseline.file, candidate.file)
    if names[0] == names[1]:
        names = (f"{names[0]} (first)", f"{names[1]} (second)")
    run_names = dict(zip(names, (baseline.run_name, candidate.run_name), strict=True))
    _check_comparable(names, files, settings)
    objective = files[0].trial.task.objective
    known: dict[str, Any] = {"baseline": names[0], "candidate": names[1], "objective": objective}
    if files[0].trial.configuration_identity == files[1].trial.configuration_identity:
        text = f"{names[0]} and {names[1]} are the same configuration: a change of seed is no improvement."
        return Judgement(**known, outcome="same configuration", text=text, estimates={})
    trained: list[TrainResult] = []

    def train_under(seed: int, name: str, file: TrialFile) -> float | None:
        trial = file.trial.model_copy(update={"seed": seed})
        trained.append(result := train(file.model_copy(update={"trial": trial}), run_names[name]))
        return result.cost

    first = _find_new_seed(files, settings)
    # A model that counts has one cost, whatever its seed.
    costs: dict[str, dict[int, float | None] | float] = {
        name: {} if file.trial.model.is_trained_by_gradient else train_under(first, name, file) or 0.0
        for name, file in zip(names, files, strict=True)
    }
    while (decision := decide_seeds(costs, terms.indifference, terms.max_seeds)).continued:
        for seed in range(first, first + decision.seeds):
            for name, file in zip(names, files, strict=True):
                own = costs[name]
                if isinstance(own, dict) and name in decision.continued and seed not in own:
                    own[seed] = train_under(seed, name, file)
    ends = [each.curve[-1] for each in trained]
    # A training continues from the checkpoint of a report.
    starts = [report for each in trained for report in each.curve if report.tokens == each.initial_tokens]
    known["tokens"] = sum(end.tokens for end in ends) - sum(start.tokens for start in starts)
    cpu_seconds = sum(end.cpu_seconds for end in ends) - sum(start.cpu_seconds for start in starts)
    gpu_seconds = sum(end.gpu_seconds for end in ends) - sum(start.gpu_seconds for start in starts)
    known["cpu_hours"], known["gpu_hours"] = cpu_seconds / 3600, gpu_seconds / 3600
    return _conclude(known, costs, decision, terms)


def _find_new_seed(files: tuple[TrialFile, TrialFile], settings: Settings) -> int:
    """The first seed after all under which a study of this home has trained either configuration."""
    corpus = open_or_draw_corpus(files[0].corpus, settings.corpus_store)
    known = StudyReader(settings.study_database).list_trained_identities()
    first = max(file.trial.seed for file in files) + 1

    def is_known(seed: int) -> bool:
        trials = (file.trial.model_copy(update={"seed": seed}) for file in files)
        return any(trial.identity(corpus.digest) in known for trial in trials)

    while used := [seed for seed in range(first, first + MAX_SEEDS) if is_known(seed)]:
        first = used[-1] + 1
    return first


def _check_comparable(names: tuple[str, str], files: tuple[TrialFile, TrialFile], settings: Settings) -> None:
    own, other = ({"corpus": file.corpus, "protocol and task": file.trial.label} for file in files)
    networks = [file for file in files if file.trial.training is not None]
    if own == other and len(networks) == len(files):
        corpus = open_or_draw_corpus(files[0].corpus, settings.corpus_store)
        task = files[0].trial.task.open(corpus, files[0].trial.protocol)
        tokens = [f"{file.trial.count_tokens(lambda: task.epoch_tokens):,}" for file in files]
        own["tokens"], other["tokens"] = tokens
    for quantity, value in own.items():
        if value != other[quantity]:
            raise StudyError(
                f"{names[0]} and {names[1]} do not compare: {quantity} {value} and {other[quantity]}; "
                "make them equal"
            )


def _conclude(
    known: dict[str, Any], costs: Mapping[str, SeedCosts], decision: SeedDecision, terms: Repeats
) -> Judgement:
    baseline, candidate, objective = known["baseline"], known["candidate"], known["objective"]
    results = {
        name: {seed: cost for seed, cost in own.items() if cost is not None}
        if isinstance(own, Mapping)
        else own
        for name, own in costs.items()
    }
    test = compare_results(results[candidate], results[baseline])
    outcome: JudgedOutcome = "equal" if decision.end == "equal" else "undecided"
    if len(decision.remaining) == 1:
        outcome = "better" if decision.remaining == (candidate,) else "worse"
    answers = {
        "equal": f"{candidate} and {baseline} are equal within {terms.describe_indifference(objective)}",
        "undecided": f"Undecided after {format_count(decision.seeds, 'seed')}: "
        f"{candidate} or {baseline} may be better",
    }
    if not any(own != {} for own in results.values()):
        answers["undecided"] = "Undecided: no seed of either has a result"
    answer = answers.get(outcome, f"{candidate} is {outcome} than {baseline}")
    failures = [
        f"{sum(cost is None for cost in own.values())} of {len(own)} seeds of {name} diverged"
        for name, own in costs.items()
        if isinstance(own, Mapping) and None in own.values()
    ]
    compared = f"{candidate} against {baseline}, " if outcome in answers else ""
    grounds = [*([compared + test.describe(objective)] if test else []), *failures]
    if isinstance(own := results[candidate], float) and isinstance(other := results[baseline], float):
        gain = objective.describe_gain(own - other)
        grounds = [f"{gain}; both learn by counting, so a seed changes nothing"]
    estimates = {
        name: estimate_cost([*own.values()], len(results)) if isinstance(own, dict) else Estimate(cost=own)
        for name, own in results.items()
        if own != {}
    }
    return Judgement(
        **known,
        outcome=outcome,
        text=f"{': '.join([answer, *(['; '.join(grounds)] if grounds else [])])}.",
        estimates=estimates,
        test=test,
        decision=decision,
    )
