"""Samplers, early stopping, and the storage of a study's trials. The only package that imports Optuna."""

from memtune.search.outage_buffer import StorageUnavailableError
from memtune.search.outcomes import Outcome, Proposal
from memtune.search.proposals import Proposals
from memtune.search.samplers import SamplerConfig
from memtune.search.study_lease import Holder, Lease
from memtune.search.successive_halving import HalvingConfig, SuccessiveHalving

__all__ = [
    "HalvingConfig",
    "Holder",
    "Lease",
    "Outcome",
    "Proposal",
    "Proposals",
    "SamplerConfig",
    "StorageUnavailableError",
    "SuccessiveHalving",
]
