"""A dry run: its samples, what they take, and what this machine cannot train."""

from pathlib import Path

import pytest
import torch

from memtune.corpora import Corpus
from memtune.errors import StudyError
from memtune.settings import Settings
from memtune.studies.definition.study_loader import load_study
from memtune.studies.study_check import check_study, dry_run, measure_core_seconds
from memtune.training import TrialConfig


@pytest.mark.parametrize("families", [1, 2, 4, 5, 7])
def test_a_dry_run_shows_each_family_five_configurations_at_least_and_none_twice(
    families: int, study_file: Path, settings: Settings
) -> None:
    names = ["lstm", "rnn", "scrn", "recurrent_memory", "residual_memory", "stack_lstm", "attention_lstm"]
    samples = dry_run(study_file, {"spaces": names[:families]}, settings).samples
    assert len({*map(repr, samples)}) == len(samples) == max(families, 5)
    assert {sample.model.family for sample in samples} == {*names[:families]}


def test_a_dry_run_shows_each_alternative_once_and_at_most_thirty(
    study_file: Path, settings: Settings
) -> None:
    for count, shown in ((7, 7), (40, 30)):
        widths = [*range(8, 8 + count)]
        terms = {"compare": "model.width", "model.width": {"choice": widths}}
        samples = dry_run(study_file, terms, settings).samples
        assert [sample.model.describe()["width"] for sample in samples] == widths[:shown]


def test_a_dry_run_shows_all_points_of_a_small_space(study_file: Path, settings: Settings) -> None:
    terms = {"sampler.kind": "grid", "model": {"width": 4}, "training.optimiser": {"learning_rate": 0.5}}
    samples = dry_run(study_file, terms, settings).samples
    assert sorted(sample.model.describe()["layers"] for sample in samples) == [1, 2]


EXCLUSIVE_SPACE = """[model]
family = "lstm"
width = { choice = [8, 9, 10, 11] }
embedding_width = { choice = [8, 9] }
tie_output = { choice = [true, false] }

[training.optimiser]
kind = "sgd"
learning_rate = 0.1
"""
"""Tied tables need embeddings as wide as the layers: of 16 points 6 are no trials."""


@pytest.mark.parametrize("seed", range(3))
def test_a_study_of_which_some_draws_are_no_trial_has_samples_of_the_others(
    seed: int, study_file: Path, settings: Settings
) -> None:
    (study_file.parent / "space.toml").write_text(EXCLUSIVE_SPACE)
    resolved, samples = dry_run(study_file, {"seed": seed}, settings)
    assert len(samples) == 5
    assert resolved.alternatives == {"lstm": ["lstm"]}
    problems = resolved.list_draw_problems(range(50))
    assert 5 < len(problems) < 35
    assert "tie_output needs embeddings as wide as the layers" in problems[0]


@pytest.mark.parametrize(
    ("terms", "ignored"),
    [
        ({}, ""),
        ({"sampler.prior": "studies"}, 'sampler.prior = "studies" replaces the priors of parameters'),
        ({"sampler.kind": "random"}, 'only the sampler "tpe" with one objective follows a prior'),
    ],
)
def test_a_study_whose_sampler_ignores_the_priors_that_it_states_says_so(
    terms: dict[str, str],
    ignored: str,
    study_file: Path,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is said of the priors that a space states."""
    dry_run(study_file, {"spaces": ["lstm"], **terms}, settings)
    assert not caplog.messages
    stated = {"training.optimiser.prior": "adam", "families.lstm.model.dropout.prior": 0.1}
    dry_run(study_file, {"spaces": ["lstm"], **stated, **terms}, settings)
    fields = "training.optimiser.prior, families.lstm.model.dropout.prior"
    expected = f"{study_file}: these priors are ignored, because {ignored}: {fields}"
    assert caplog.messages == ([expected] if ignored else [])


@pytest.mark.parametrize(
    ("terms", "warning"),
    [
        ({"repeats.seeds": 5}, "seeds under [repeats] has no effect without best or until; add best = 2"),
        ({"repeats.seeds": 5, "repeats.best": 1}, ""),
        ({"sampler.kind": "random", "sampler.prior": "none"}, ""),
        (
            {"model.layers": 1, "model.dropout": {"choice": [0.0, 0.1]}},
            "dropout = 0.1 has no effect, because one layer has nothing between layers; add "
            'dropout_placement = "after"',
        ),
        ({"model.dropout": 0.1, "model.layers": {"choice": [1, 2]}}, ""),
    ],
)
def test_a_term_without_effect_is_named(
    terms: dict[str, object],
    warning: str,
    study_file: Path,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    dry_run(study_file, terms, settings)
    assert caplog.messages == ([f"{study_file}: {warning}"] if warning else [])


def test_what_repeats_take_is_measured_on_models_that_are_repeated(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(config: TrialConfig, _: Corpus) -> float:
        return 0.0 if config.training is None else 0.5

    monkeypatch.setattr("memtune.studies.study_check.measure_seconds_per_token", measure)
    (study_file.parent / "kneser_ney.toml").write_text('[model]\nfamily = "kneser_ney"\norder = 2\n')
    resolved, samples = dry_run(study_file, {"spaces": ["space.toml", "kneser_ney.toml"]}, settings)
    measured = measure_core_seconds(resolved, samples[:3])
    assert [sample.model.family for sample in samples[:3]] == ["lstm", "kneser_ney", "lstm"]
    assert measured == pytest.approx((300, 450))


@pytest.mark.parametrize(
    "terms", [{"training.precision": "bfloat16"}, {"repeats": {"best": 1, "precision": "bfloat16"}}]
)
def test_a_precision_that_this_machine_lacks_is_refused_before_anything_starts(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, terms: dict[str, object]
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False, "amx_bf16": False})
    with pytest.raises(StudyError, match="this processor has neither"):
        dry_run(study_file, terms, settings)


def test_a_precision_of_other_nodes_is_not_checked_here(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False, "amx_bf16": False})
    study = load_study(study_file, {"training.precision": "bfloat16"})
    assert check_study(study_file, study, settings, "ray://head:10001").study == study


def test_a_dry_run_is_a_data_frame_with_alternatives_sizes_and_searched_fields(
    study_file: Path, settings: Settings
) -> None:
    frame = dry_run(study_file, {"compare": "model.layers"}, settings).to_frame()
    assert set(frame["alternative"]) == {"layers 1", "layers 2"}
    assert (frame[["parameters", "multiply_adds", "carried_state", "memory"]] > 0).all(axis=None)
    assert {"model.width", "model.layers", "training.optimiser.learning_rate"} <= {*frame}
