"""Trials of a study with given values, for tests of what is computed from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView
from memtune.search import StoredStudy, StoredTrial
from memtune.settings import Settings
from memtune.training import TrialConfig, TrialSizes
from memtune.trial_state import TrialState
from memtune.usage import Usage


@dataclass(frozen=True)
class KnownStudy:
    """What trials ask their study for, with fixed answers."""

    sizes: TrialSizes | None = None

    def find_place(self, trial: StudyTrial) -> int | None:
        return None

    def measure(self, trial: StudyTrial) -> TrialSizes | None:
        return self.sizes


def make_config(family: str, number: int, seed: int = 0) -> TrialConfig:
    """A configuration that differs by its number."""
    if family == "kneser_ney":
        return TrialConfig.model_validate({"model": {"family": family, "order": number + 2}, "seed": seed})
    known = family if family in ("rnn", "lstm") else "lstm"
    return TrialConfig.model_validate(
        {
            "model": {"family": known, "width": number + 1},
            "training": {"tokens": 900, "optimiser": {"kind": "sgd", "learning_rate": 1.0}},
            "seed": seed,
        }
    )


def make_study_trial(
    family: str, number: int, curve: Mapping[int, float], *, sizes: TrialSizes | None = None, **fields: Any
) -> StudyTrial:
    """A complete trial of 900 tokens, unless `fields` say otherwise."""
    config = make_config(family, number, fields.get("seed", 0))
    known = {
        "number": number,
        "name": f"{family} #{number}",
        "family": family,
        "alternative": family,
        "seed": config.seed,
        "is_repeat": False,
        "identity": config.identity("corpus"),
        "state": TrialState.COMPLETE,
        "curve": dict(curve),
        "study": "s",
        "config": config,
        "usage": Usage(tokens=max(curve, default=0)),
        "planned_tokens": 900 if config.model.is_trained_by_gradient else None,
    }
    trial = StudyTrial.model_validate({**known, **fields})
    study = KnownStudy(sizes)
    trial._find_place, trial._measure = study.find_place, study.measure
    return trial


def make_view(outcomes: Sequence[StoredTrial], repeats: Sequence[StoredTrial] = ()) -> StudyView:
    """A study with these trials, whose corpus is not in the store."""
    stored = StoredStudy("s-0123abcd", list(outcomes), list(repeats), 1.0, datetime(2026, 1, 1))
    return StudyView(stored, Settings.from_environment("/nonexistent/home"))
