from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend

from memtune.search import SAMPLERS, Proposals
from memtune.search.proposals import Candidates
from memtune.spaces import Space, combine_spaces, read_space
from memtune.values import digest

SPACE_TOMLS = {
    "continuous": (
        "[model]\nmemory_size = { int = [1, 20] }\n"
        '[optimiser]\none_of = "kind"\n'
        "[optimiser.sgd]\nlearning_rate = { float = [0.1, 2.0], log = true }\n"
        "[optimiser.adam]\nlearning_rate = { float = [1e-4, 1e-2], log = true }\n"
    ),
    "four points": '[model]\nlayers = { int = [1, 2] }\ncomposition = { choice = ["gate", "sum"] }\n',
}
FAMILIES = ("lstm", "rnn", "scrn", "lstmn")


def make_space(name: str) -> Space:
    if name != "families":
        return read_space(SPACE_TOMLS[name], "space.toml")
    texts = {family: f'[model]\nfamily = "{family}"\nwidth = {{ int = [1, 99] }}\n' for family in FAMILIES}
    return combine_spaces(read_space(text, family) for family, text in texts.items())


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"journal://{tmp_path}/study.log"


@pytest.fixture
def read_optuna_trials(storage: str) -> Callable[..., list[optuna.trial.FrozenTrial]]:
    """The trials as another process reads them from the storage."""

    def read_optuna_trials(url: str = storage) -> list[optuna.trial.FrozenTrial]:
        journal = optuna.storages.JournalStorage(JournalFileBackend(url.removeprefix("journal://")))
        return optuna.load_study(study_name="s", storage=journal).trials

    return read_optuna_trials


@pytest.fixture
def open_study(storage: str) -> Callable[..., Proposals]:
    """Opens the study "s" in this test's storage; each call is a new driver."""

    def open_study(
        space: str = "continuous",
        kind: str = "random",
        seed: int = 0,
        refuse: Callable[[dict[str, Any]], str | None] = lambda configuration: None,
        identify: Callable[[dict[str, Any]], str] = lambda configuration: digest(configuration)[:16],
        url: str = storage,
        name: str = "s",
        guard: Callable[[], None] = lambda: None,
        initial_points: Sequence[dict[str, Any]] = (),
        prior_points: Sequence[dict[str, Any]] = (),
        compared: str = "model.family",
    ) -> Proposals:
        sampler = SAMPLERS[kind](kind=kind, seed=seed, startup_trials=4)
        return Proposals(
            url,
            name,
            Candidates(
                make_space(space),
                sampler,
                identify,
                refuse,
                None,
                lambda: initial_points,
                compared=compared,
                list_prior_points=lambda: prior_points,
            ),
            guard,
        )

    return open_study
