"""A dry run: its samples, and what this machine cannot train."""

from pathlib import Path

import pytest
import torch

from memtune.errors import StudyError
from memtune.settings import Settings
from memtune.studies.definition.study_loader import load_study
from memtune.studies.study_check import check_study, dry_run


@pytest.mark.parametrize("families", [1, 2, 4, 5, 7])
def test_a_dry_run_shows_each_of_five_families_and_no_configuration_twice(
    families: int, study_file: Path, settings: Settings
) -> None:
    names = ["lstm", "rnn", "scrn", "recurrent_memory", "residual_memory", "stack_lstm", "attention_lstm"]
    samples = dry_run(study_file, {"spaces": names[:families]}, settings).samples
    assert len({*map(repr, samples)}) == 5
    assert len({sample.model.family for sample in samples}) == min(families, 5)


def test_a_dry_run_shows_all_points_of_a_small_space(study_file: Path, settings: Settings) -> None:
    terms = {"sampler.kind": "grid", "model": {"width": 4}, "training.optimiser": {"learning_rate": 0.5}}
    samples = dry_run(study_file, terms, settings).samples
    assert sorted(sample.model.describe()["layers"] for sample in samples) == [1, 2]


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
