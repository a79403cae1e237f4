"""Registration of models in the registry: champions, the best of a family, and concurrent registrations."""

import math
import time

import pytest
from mlflow.tracking import MlflowClient

from memtune.errors import TrackingError
from memtune.objective import Objective
from memtune.tracking import (
    NO_STUDY,
    CorpusInput,
    Recorder,
    list_champions,
)
from memtune.tracking.registry import model_registry
from memtune.tracking.registry.model_package import check_package
from tests.presence import require
from tests.unit.tracking.registered_models import (
    find_package,
    make_result,
    read_versions_by_alias,
    register_package,
)


def test_the_first_result_becomes_champion(register, tracking_uri):
    decision = register(5.0)
    assert [decision.champion] == list_champions(tracking_uri, "ptb")
    assert decision.reason.startswith("first champion")


def test_a_better_result_replaces_the_champion(register, client):
    register(5.0)
    register(4.9)
    assert read_versions_by_alias(client) == {"champion": 2, "best-lstm": 2, "previous": 1}


@pytest.mark.parametrize("loss", [5.0, 5.1])
def test_a_result_that_is_not_better_is_refused(register, client, loss):
    register(5.0)
    decision = register(loss, study="another")
    assert decision.champion is None
    assert "as good or better" in decision.reason
    assert read_versions_by_alias(client) == {"champion": 1, "best-lstm": 1}


def test_each_label_has_a_champion(register, client, tracking_uri):
    register(5.0)
    worse = register(9.0, label="sentence, agreement by accuracy", objective=Objective.ACCURACY).champion
    assert worse.alias == "champion-sentence-agreement-by-accuracy"
    champions = list_champions(tracking_uri)
    assert [champion.alias for champion in champions] == ["champion", worse.alias]
    assert champions[0].protocol == "stream"
    register(8.0, label="sentence, agreement by accuracy", objective=Objective.ACCURACY)
    register(4.0)
    suffix = "-sentence-agreement-by-accuracy"
    assert read_versions_by_alias(client) == {
        "champion": 4,
        "best-lstm": 4,
        "previous": 1,
        f"champion{suffix}": 3,
        f"best-lstm{suffix}": 3,
        f"previous{suffix}": 2,
    }


def test_the_best_of_a_family_is_registered_beside_a_better_champion(register, client):
    register(4.0)
    rnn = {"model": {"family": "rnn"}, "seed": 3}
    decision = register(5.0, configuration=rnn)
    assert (decision.champion, decision.version.version) == (None, 2)
    assert register(6.0, configuration=rnn).version is None
    assert read_versions_by_alias(client) == {"champion": 1, "best-lstm": 1, "best-rnn": 2}


def test_the_best_of_a_family_alone_does_not_become_champion(register, client):
    """A trial that is best of its family at fewer tokens or seeds may have a lower cost than the winner."""
    register(3.0, as_champion=False, study="s1", configuration={"model": {"family": "rnn"}, "seed": 3})
    assert register(4.0, study="s2").champion.version == 2
    assert read_versions_by_alias(client) == {"champion": 2, "best-lstm": 2, "best-rnn": 1}


def test_a_model_of_another_corpus_with_the_same_name_replaces_the_champion(register, client):
    register(5.0)
    decision = register(6.0, corpus_digest="e" * 64)
    assert decision.champion.version == 2
    assert decision.reason.endswith("on another text of this name")
    assert read_versions_by_alias(client) == {"champion": 2, "best-lstm": 2, "previous": 1}


def test_the_newer_conclusion_of_a_study_replaces_its_older_one(register, client):
    """More seeds of the champion raise the cost of a configuration that was lucky with its first one."""
    register(5.0, study="s1")
    register(5.2, study="s1", estimate={"cost": 5.2, "seeds": 3, "low": 5.0, "high": 5.4})
    assert read_versions_by_alias(client) == {"champion": 2, "best-lstm": 2}
    again = register(5.2, study="s1")
    assert again.reason.startswith("models:/ptb/2 is this model")
    assert (again.champion, again.version.version, again.version.alias) == (None, 2, "champion")


@pytest.mark.parametrize(
    "subject", [{"study": "s1"}, {"study": NO_STUDY, "configuration_identity": "a configuration"}]
)
def test_a_worse_conclusion_gives_way_to_the_model_that_its_older_one_had_refused(subject, register, client):
    """The study, or the configuration trained without one, was lucky with its first seed."""
    register(5.0, **subject)
    other = {"estimate": {"cost": 5.1, "seeds": 3, "low": 5.0, "high": 5.2}, "trial_cost": 5.05}
    register(5.1, study="s2", configuration={"model": {"family": "rnn"}, "seed": 3}, **other)
    mean = {"estimate": {"cost": 5.2, "seeds": 3, "low": 5.0, "high": 5.4}, "trial_cost": 5.0}
    decision = register(5.2, **subject, **mean)
    assert decision.champion is None
    assert decision.reason.startswith("a better model is registered: models:/ptb/2")
    assert read_versions_by_alias(client) == {"champion": 2, "best-lstm": 3, "best-rnn": 2, "previous": 1}


def test_a_conclusion_that_was_refused_is_not_followed_by_the_luck_of_its_older_one(register, client):
    """B was best with its first seed, and its mean is worse than that of A."""
    a, b = ({"study": NO_STUDY, "configuration_identity": name} for name in "ab")
    register(2.9, **b)
    register(2.8, **a)
    refused = register(3.95, **b, estimate={"cost": 3.95, "seeds": 2}, trial_cost=2.9)
    assert (refused.champion, refused.version.version) == (None, 3)
    assert register(3.4, **a, estimate={"cost": 3.4, "seeds": 2}, trial_cost=2.8).champion.version == 4
    assert read_versions_by_alias(client) == {"champion": 4, "best-lstm": 4, "previous": 1}


def test_a_single_seed_that_is_worse_than_the_weights_of_a_mean_does_not_replace_it(register):
    a, b = ({"study": NO_STUDY, "configuration_identity": name} for name in "ab")
    register(2.9, **b)
    register(2.8, **a)
    mean = register(3.4, **a, estimate={"cost": 3.4, "seeds": 2}, trial_cost=2.8)
    assert mean.champion.version == 3


def test_a_restored_text_has_the_best_model_that_was_registered_for_it(register, client):
    register(2.5, study="s1")
    register(3.5, study="s2", corpus_digest="e" * 64)
    assert register(2.9, study="s3").champion is None
    assert read_versions_by_alias(client)["champion"] == 1


def test_a_lucky_seed_of_a_configuration_does_not_beat_its_mean(register, client):
    alone = {"study": NO_STUDY, "configuration_identity": "a configuration"}
    register(5.0, **alone)
    mean = {"estimate": {"cost": 5.2, "seeds": 2}, "trial_cost": 5.0}
    assert register(5.2, **alone, **mean).champion.version == 2
    assert register(5.1, study=NO_STUDY, configuration_identity="another one").champion is None
    assert read_versions_by_alias(client) == {"champion": 2, "best-lstm": 2}


def test_a_single_seed_has_to_beat_the_weights_of_a_mean(register, client):
    """It may be lucky, and a mean is not."""
    mean = {"estimate": {"cost": 5.0, "seeds": 3, "low": 4.8, "high": 5.2}, "trial_cost": 4.9}
    register(5.0, study="mean", **mean)
    lucky = register(4.95, study="lucky")
    assert lucky.champion is None
    assert lucky.reason.endswith("; its best seed has 134.290")
    assert register(4.85, study="better").champion.version == 2
    assert register(4.95, study="other mean", **(mean | {"trial_cost": 4.8})).champion is None
    assert register(4.8, study="better mean", **(mean | {"trial_cost": 4.7})).champion.version == 3
    assert read_versions_by_alias(client) == {"champion": 3, "best-lstm": 3, "previous": 2}


def test_a_model_that_the_champion_refused_does_not_follow_it(register, client):
    mean = {"estimate": {"cost": 5.0, "seeds": 3, "low": 4.8, "high": 5.2}}
    register(5.0, study="mean", trial_cost=4.9, **mean)
    rnn = {"model": {"family": "rnn"}, "seed": 3}
    assert register(5.05, study="refused", trial_cost=4.8, configuration=rnn, **mean).champion is None
    assert register(4.85, study="single").champion.version == 3
    assert read_versions_by_alias(client)["champion"] == 3


def test_means_over_seeds_compare_with_each_other(register):
    mean = {"estimate": {"cost": 5.0, "seeds": 3, "low": 4.8, "high": 5.2}}
    register(5.0, study="first", trial_cost=4.9, **mean)
    assert register(5.1, study="lucky seed", trial_cost=4.5, **mean).champion is None
    assert register(4.99, study="second", trial_cost=4.95, **mean).champion.version == 2


def test_the_mean_over_seeds_and_its_interval_are_stored_with_the_version(register, client, tracking_uri):
    estimate = {"cost": math.log(100), "seeds": 3, "low": math.log(90), "high": math.log(110)}
    register(math.log(100), estimate=estimate, trial_cost=math.log(95))
    (champion,) = list_champions(tracking_uri, "ptb")
    assert champion.interval == pytest.approx((90, 110))
    assert champion.trial_cost == math.log(95)
    summary = "validation perplexity 100.000 (mean of 3 seeds, 95 % interval 90.000 to 110.000)"
    version = client.get_model_version("ptb", "1")
    assert champion.summary == version.description == summary
    assert float(version.tags["valid_perplexity"]) == pytest.approx(100)
    assert float(version.tags["valid_perplexity_high"]) == pytest.approx(110)


def test_the_figures_of_a_model_are_on_its_corpus_at_its_tokens(tracking_uri, model_folder, client):
    """The pages compare models by figures that have one dataset."""
    dataset = CorpusInput(name="ptb", digest="d" * 36, store="store", vocabulary_size=5, splits={})
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_study("s1", "study", {})
        recorder.start_trial("t1", "trial", {}, dataset=dataset)
    result = make_result(math.log(100), trial_cost=math.log(95), metrics={"tokens": 700})
    started_ms = int(1000 * time.time())
    version = require(register_package(tracking_uri, result, model_folder).version)
    figures = {figure.key: figure for figure in client.get_logged_model(version.model_id).metrics}
    assert {name: figure.value for name, figure in figures.items()} == {
        "model_valid_perplexity": pytest.approx(100),
        "model_weights_valid_perplexity": pytest.approx(95),
    }
    for figure in figures.values():
        assert (figure.step, figure.dataset_name, figure.dataset_digest) == (700, "ptb", "d" * 36)
        assert started_ms <= figure.timestamp <= 1000 * time.time()


def test_a_model_has_the_parameters_of_its_run(tracking_uri, model_folder, client):
    """The pages compare models and runs by one set of names and values."""
    recorded = {"parameters": 7, "training": {"epochs": None, "tokens": 900}, "model": {"cell": True}}
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "trial", {**recorded, "long": "x" * 600})
    result = make_result(5.0, study=NO_STUDY)
    version = require(register_package(tracking_uri, result, model_folder).version)
    parameters = client.get_logged_model(version.model_id).params
    assert len(parameters.pop("long")) == 500
    assert parameters == {"parameters": "7", "training.tokens": "900", "model.cell": "true"}


def test_a_version_of_an_earlier_memtune_is_a_single_seed(register, client, tracking_uri):
    register(5.0)
    for tag in ("seeds", "offered_as"):
        client.delete_model_version_tag("ptb", "1", tag)
    (champion,) = list_champions(tracking_uri, "ptb")
    assert champion.summary.endswith("(decided by a single seed)")


@pytest.mark.parametrize(
    ("tag", "value"), [("cost", "nan"), ("cost", "inf"), ("low", "-inf"), ("high", "nan"), ("seeds", "0")]
)
def test_a_version_whose_figures_are_not_numbers_is_named_and_skipped(
    register, client, tracking_uri, tag, value, caplog
):
    """A cost of minus infinity would stay champion for ever."""
    register(5.0)
    client.set_model_version_tag("ptb", "1", tag, value)
    assert list_champions(tracking_uri, "ptb") == []
    assert f"memtune, which writes other values of the tags {tag} (" in caplog.text


def test_by_accuracy_the_higher_figure_wins(register):
    first = register(0.5, objective=Objective.ACCURACY).champion
    assert first.figure == 0.5
    assert register(0.6, objective=Objective.ACCURACY).champion is None
    assert register(0.4, objective=Objective.ACCURACY).reason == (
        "validation accuracy 60.000 % (decided by a single seed), "
        "before validation accuracy 50.000 % (decided by a single seed)"
    )


@pytest.mark.parametrize(
    ("interrupted_step", "aliases"),
    [
        ("_upload", {"champion": 2, "best-lstm": 2}),
        ("_give_alias", {"champion": 2, "best-lstm": 2, "previous": 1}),
    ],
)
def test_the_better_of_two_studies_that_finish_at_once_is_champion(
    register, monkeypatch, client, interrupted_step, aliases
):
    """The second study, with the better model, registers it while the first is in the middle."""
    step = getattr(model_registry, interrupted_step)

    def register_better_first(*arguments):
        monkeypatch.setattr(model_registry, interrupted_step, step)
        if interrupted_step == "_give_alias":
            assert register(4.0).champion
            return step(*arguments)
        candidate = step(*arguments)
        assert register(4.0).champion
        return candidate

    monkeypatch.setattr(model_registry, interrupted_step, register_better_first)
    decision = register(4.5)
    assert decision.champion is None
    assert decision.reason.startswith("a better model is registered: ")
    assert read_versions_by_alias(client) == aliases


def test_a_model_that_two_processes_register_at_once_has_one_version(register, monkeypatch, client):
    """As the mean over seeds of two trainings that end at the same moment."""
    create = MlflowClient.create_model_version

    def register_in_between(*arguments, **options):
        monkeypatch.setattr(MlflowClient, "create_model_version", create)
        assert register(5.0).champion.version == 1
        return create(*arguments, **options)

    monkeypatch.setattr(MlflowClient, "create_model_version", register_in_between)
    assert register(5.0).version.version == 1
    assert [version.version for version in client.search_model_versions("name = 'ptb'")] == [1]
    assert read_versions_by_alias(client) == {"champion": 1, "best-lstm": 1}


def test_an_interrupted_registration_is_completed_by_the_next_one(register, monkeypatch, client):
    """The process dies after it has created the version and before the registration."""

    def die(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(model_registry, "_give_alias", die)
        with pytest.raises(KeyboardInterrupt):
            register(5.0)
    assert register(5.0).champion.version == 1
    assert read_versions_by_alias(client) == {"champion": 1, "best-lstm": 1}


def test_a_model_whose_logging_was_interrupted_is_completed_and_one_output_of_its_run(
    register, monkeypatch, client
):
    """The process dies after the run has the model as its output and before the model is ready."""

    def die(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(MlflowClient, "finalize_logged_model", die)
        with pytest.raises(KeyboardInterrupt):
            register(5.0)
    champion = register(5.0).champion
    outputs = client.get_run(champion.run_id).outputs.model_outputs
    assert [output.model_id for output in outputs] == [champion.model_id]
    assert str(client.get_logged_model(champion.model_id).status) == "READY"


def test_a_registration_is_retried_after_a_transient_error(register, monkeypatch, client):
    give_alias, errors = model_registry._give_alias, [OSError("unavailable"), OSError("unavailable")]

    def fail_twice(*arguments):
        if errors:
            raise errors.pop()
        give_alias(*arguments)

    monkeypatch.setattr(model_registry, "_give_alias", fail_twice)
    assert register(5.0).champion.version == 1
    assert read_versions_by_alias(client) == {"champion": 1, "best-lstm": 1}


def test_a_result_without_a_figure_is_refused():
    with pytest.raises(ValueError, match="finite number"):
        make_result(math.nan)


def test_a_model_without_a_run_is_refused(register):
    with pytest.raises(TrackingError, match="no trial t9"):
        register(5.0, trial="t9")


def test_champions_are_listed(register, tracking_uri):
    assert list_champions(tracking_uri) == []
    champion = register(5.0).champion
    assert list_champions(tracking_uri) == [champion]


def test_an_interrupted_registration_logs_the_figures_of_its_model_once(register, client, monkeypatch):
    def interrupt(*arguments: object) -> None:
        raise TrackingError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(model_registry, "_link_to_run", interrupt)
        with pytest.raises(TrackingError, match="interrupted"):
            register(5.0)
    decision = register(5.0)
    run_id = client.get_model_version("ptb", "1").run_id
    assert decision.champion.version == 1
    assert len(client.get_metric_history(run_id, "model_valid_perplexity")) == 1


def test_a_model_registered_again_keeps_its_files_while_they_are_whole(register, client, tracking_uri):
    """Somebody may load them at that moment; damaged ones are written again."""
    package = find_package(client, tracking_uri, register(5.0, study="s1").champion)
    register(4.0, study="s2")
    written = {path.name: path.stat().st_mtime_ns for path in package.iterdir()}
    assert register(5.0, study="s1").version.version == 1
    assert {path.name: path.stat().st_mtime_ns for path in package.iterdir()} == written
    (package / "model.safetensors").write_bytes(b"damaged")
    (package / "vocabulary.json").unlink()
    register(5.0, study="s1")
    assert set(check_package(package).files) | {"memtune.json"} == set(written)
