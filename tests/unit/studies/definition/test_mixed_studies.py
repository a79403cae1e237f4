"""Studies of n-gram models, alone and next to networks."""

from pathlib import Path

import pytest

from memtune.errors import SpaceError, StudyError
from memtune.settings import Settings
from memtune.spaces import RandomChooser
from tests.unit.studies.study_files import resolve

NGRAMS = """
[model]
family = "kneser_ney"
order = { int = [2, 4] }
"""
EXCLUSIVE_FIELDS = ("random_lengths", "shuffled_windows")


@pytest.fixture
def mixed_study(study_file: Path) -> Path:
    """A study of networks and n-gram models, with a width and a training for the networks."""
    (study_file.parent / "ngrams.toml").write_text(NGRAMS)
    text = study_file.read_text().replace('["space.toml"]', '["ngrams.toml", "space.toml"]')
    study_file.write_text(text + "\n[model]\nwidth = 6\n")
    return study_file


def test_fields_that_some_families_lack_override_the_others(mixed_study: Path, settings: Settings) -> None:
    found = resolve(mixed_study, settings)
    samples = [found.sample(RandomChooser(seed)) for seed in range(20)]
    assert {config.model.family for config in samples} == {"kneser_ney", "lstm"}
    for config in samples:
        network = config.model.family == "lstm"
        assert (config.training is not None) == network
        assert not network or config.model.describe()["width"] == 6


def test_a_field_that_no_family_has_is_an_error(mixed_study: Path, settings: Settings) -> None:
    mixed_study.write_text(mixed_study.read_text().replace("width = 6", "widht = 6"))
    with pytest.raises(SpaceError, match='did you mean "width"'):
        resolve(mixed_study, settings)


def test_the_budget_of_a_mixed_study_is_that_of_its_networks(mixed_study: Path, settings: Settings) -> None:
    assert resolve(mixed_study, settings).trial_tokens == 900


def test_what_the_trials_share_is_what_every_draw_has(mixed_study: Path, settings: Settings) -> None:
    batches = "\n[protocol]\nkind = 'stream'\nlength = 7\nbatch_size = { choice = [4, 5] }\n"
    mixed_study.write_text(mixed_study.read_text() + batches)
    found = resolve(mixed_study, settings)
    shared, samples = found.shared, [*found.draw(range(20))]
    labels = {(sample.protocol.label, sample.task.label) for sample in samples}
    assert labels == {(shared.protocol.label, shared.task.label)} == {("stream", "")}
    trainings = [shared.training, *(sample.training for sample in samples if sample.training)]
    assert {(training.tokens, training.report_every) for training in trainings} == {(900, 300)}


def test_families_under_two_protocols_are_refused(mixed_study: Path, settings: Settings) -> None:
    space = mixed_study.parent / "ngrams.toml"
    space.write_text(f"{NGRAMS}[protocol]\nkind = 'stream'\n")
    with pytest.raises(StudyError, match='the space has "sentence" and "stream"; choose one'):
        resolve(mixed_study, settings)


def test_fields_of_the_protocol_that_exclude_each_other_may_be_searched(
    mixed_study: Path, settings: Settings
) -> None:
    fields = "\n".join(f"{name} = {{ choice = [true, false] }}" for name in EXCLUSIVE_FIELDS)
    mixed_study.write_text(f"{mixed_study.read_text()}\n[protocol]\nkind = 'stream'\n{fields}\n")
    shared = resolve(mixed_study, settings).shared
    assert sum(getattr(shared.protocol, name) for name in EXCLUSIVE_FIELDS) == 1


def test_a_study_of_n_grams_alone_reads_the_text_once(study_file: Path, settings: Settings) -> None:
    (study_file.parent / "space.toml").write_text(NGRAMS)
    text = study_file.read_text().replace("[training]\ntokens = 900\nreport_every = 300\n", "")
    study_file.write_text(text)
    found = resolve(study_file, settings)
    assert found.trial_tokens == found.corpus["train"].token_count


def test_n_gram_models_are_not_refused_for_their_parameters(mixed_study: Path, settings: Settings) -> None:
    found = resolve(mixed_study, settings, **{"budget.min_parameters": 1_000_000})
    assert found.limits.get_refusal_reason({"model": {"family": "kneser_ney", "order": 3}}) is None
    assert (
        found.limits.get_refusal_reason({"model": {"family": "lstm"}, "training": {"tokens": 9}}) is not None
    )


def test_n_gram_models_request_no_gpu(mixed_study: Path, settings: Settings) -> None:
    found = resolve(mixed_study, settings, **{"resources.gpus_per_trial": 0.5})
    requested = {
        config.model.family: found.limits.compute_gpus(config, None)
        for config in (found.sample(RandomChooser(seed)) for seed in range(30))
    }
    assert requested["kneser_ney"] == 0.0
    assert set(requested.values()) == {0.0, 0.5}
