"""A trial's configuration: refused values, and the identity of trials."""

import pytest

from memtune.errors import ConfigurationError
from memtune.training import TrainingConfig, TrialConfig
from memtune.values import parse


@pytest.mark.parametrize("budget", [{}, {"epochs": 1, "tokens": 100}])
def test_the_budget_is_epochs_or_tokens(budget):
    with pytest.raises(ConfigurationError, match="epochs or as tokens, exactly one"):
        parse(TrainingConfig, budget, "study.toml")


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"epochs": 1, "optimiser": {"kind": "sgd", "learning_rat": 1}}, 'did you mean "learning_rate"'),
        ({"epochs": 1, "optimiser": {"kind": "adam", "learning_rate": 0}}, "learning_rate"),
        ({"epochs": 1, "schedule": {"kind": "step", "factor": 2}}, "factor"),
        ({"epochs": 0}, "epochs"),
        ({"epochs": float("inf")}, "epochs"),
        ({"epochs": float("nan")}, "epochs"),
        ({"tokens": 2**63}, "tokens"),
        ({"epochs": 1, "clip_norm": 0}, "clip_norm"),
    ],
)
def test_an_invalid_value_is_refused_with_its_name(training, message):
    with pytest.raises(ConfigurationError, match=message):
        parse(TrainingConfig, training, "study.toml")


def test_a_seed_that_torch_does_not_take_is_refused():
    trial = {"model": {"family": "lstm"}, "training": {"epochs": 1}, "seed": 2**63}
    with pytest.raises(ConfigurationError, match="seed: Input should be less than"):
        parse(TrialConfig, trial, "trial.toml")


def test_the_identity_covers_every_field(make_trial):
    trials = [
        make_trial(),
        make_trial(seed=4),
        make_trial(epochs=3),
        make_trial(protocol={"kind": "sentence", "batch_size": 17}),
        make_trial(model={"family": "lstm", "width": 13}),
    ]
    identities = {trial.identity(digest) for trial in trials for digest in ("a", "b")}
    assert len(identities) == 2 * len(trials)
    assert all(len(identity) == 16 for identity in identities)


def test_identity_survives_json(make_trial):
    trial = make_trial(optimiser={"kind": "adamw", "learning_rate": 1e-3}, schedule={"kind": "plateau"})
    again = TrialConfig.model_validate_json(trial.model_dump_json())
    assert again == trial
    assert again.identity("corpus") == trial.identity("corpus")
