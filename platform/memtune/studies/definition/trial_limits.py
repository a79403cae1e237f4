"""What a study lets its trials use: numbers of parameters, memory, and the devices that they request."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from memtune.corpora import Corpus
from memtune.errors import ConfigurationError
from memtune.model_checks.check_run import find_formula_problem
from memtune.plugins import list_sources
from memtune.studies.definition.study import Study
from memtune.training import (
    MemoryEstimate,
    TrialConfig,
    compute_sizes,
    estimate_memory,
    find_longest_row,
    measure_available_bytes,
)
from memtune.training.memory_footprint import compute_gpu_bytes, compute_gpu_share
from memtune.values import parse


def make_trial_config(sampled: Mapping[str, Any]) -> TrialConfig:
    """The trial of a sampled configuration. Raises ConfigurationError where its fields exclude each other."""
    return TrialConfig.model_validate(parse(TrialConfig, sampled, "sampled configuration"))


@dataclass(frozen=True)
class TrialLimits:
    """The limits of a study's trials on its corpus."""

    study: Study
    corpus: Corpus

    def select_device(self, config: TrialConfig) -> str:
        """The device of a trial; models that count need no GPU."""
        uses_gpu = self.study.resources.gpus_per_trial and config.model.is_trained_by_gradient
        return "cuda" if uses_gpu else "cpu"

    def compute_gpus(self, config: TrialConfig, gpu_bytes: int | None) -> float:
        """The GPUs that a trial requests; with "fit" from its memory and that of one GPU."""
        requested = self.study.resources.gpus_per_trial
        if self.select_device(config) == "cpu":
            return 0.0
        if requested != "fit":
            return requested
        assert gpu_bytes is not None, "gpus_per_trial = fit needs the memory of a GPU"
        return compute_gpu_share(self._estimate_memory(config).total, gpu_bytes) or 1.0

    def get_refusal_reason(self, configuration: Mapping[str, Any]) -> str | None:
        """Why a configuration must not start, or None.

        Its parameters, state or memory are out of bounds, the task does not support its model, or the
        formulas of a plug-in fail for it.
        """
        try:
            config = make_trial_config(configuration)
            if problem := find_formula_problem(config, len(self.corpus.vocabulary)):
                return problem
            parameters = config.parameter_count(len(self.corpus.vocabulary))
        except ConfigurationError as error:
            return str(error)
        if not config.model.is_trained_by_gradient:
            return None
        budget = self.study.budget
        if parameters > (budget.max_parameters or math.inf):
            return f"{parameters:,} parameters are more than max_parameters = {budget.max_parameters:,}"
        if parameters < (budget.min_parameters or 0):
            return f"{parameters:,} parameters are fewer than min_parameters = {budget.min_parameters:,}"
        state = config.model.state_size()
        if state > (budget.max_state or math.inf):
            return f"a state of {state:,} numbers is more than max_state = {budget.max_state:,}"
        return self._get_memory_refusal_reason(config)

    def compute_sizes_to_store(self, configuration: Mapping[str, Any]) -> dict[str, int | None]:
        """The sizes of a model of a user's source, which a report must not execute; empty for others."""
        config = make_trial_config(configuration)
        has_source = bool(list_sources(config.model_dump(mode="json")))
        return compute_sizes(config, self.corpus).model_dump() if has_source else {}

    def _get_memory_refusal_reason(self, config: TrialConfig) -> str | None:
        """Why the trial does not fit the memory of this machine, or of the study's GPUs; or None."""
        needed = self._estimate_memory(config)
        if self.select_device(config) == "cuda":
            memory = self.study.resources.gpu_memory
            if memory is None or compute_gpu_share(needed.total, memory) is not None:
                return None
            gpu_mib, available_mib = compute_gpu_bytes(needed.total) / 2**20, memory / 2**20
            return f"it would take {needed}, and {gpu_mib:,.0f} MiB of a GPU, which has {available_mib:,.0f}"
        available = measure_available_bytes(torch.device("cpu"))
        if needed.total <= available:
            return None
        return f"it would take {needed} of the {available / 2**20:,.0f} MiB there are"

    def _estimate_memory(self, config: TrialConfig) -> MemoryEstimate:
        return estimate_memory(
            config, len(self.corpus.vocabulary), find_longest_row(config.protocol, self.corpus["train"])
        )
