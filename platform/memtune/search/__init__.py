"""Samplers, early stopping, and the storage of a study's trials. The only package that imports Optuna."""

from memtune.search.early_stopping import RULES, AnyEarlyStopping, EarlyStopping, Rule
from memtune.search.outage_buffer import StorageUnavailableError
from memtune.search.outcomes import Outcome, Proposal
from memtune.search.proposals import Proposals
from memtune.search.samplers import SamplerConfig, check_sampler
from memtune.search.study_lease import Holder, Lease

__all__ = [
    "RULES",
    "AnyEarlyStopping",
    "EarlyStopping",
    "Holder",
    "Lease",
    "Outcome",
    "Proposal",
    "Proposals",
    "Rule",
    "SamplerConfig",
    "StorageUnavailableError",
    "check_sampler",
]
