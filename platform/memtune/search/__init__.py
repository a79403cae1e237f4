"""What to try next: samplers, early stopping, and a study's memory of every trial."""

from memtune.search.halving import HalvingConfig, SuccessiveHalving
from memtune.search.lease import Holder, Lease
from memtune.search.outcomes import Outcome, Proposal, State
from memtune.search.patience import StorageAwayError
from memtune.search.proposals import Proposals
from memtune.search.samplers import SamplerConfig

__all__ = [
    "HalvingConfig",
    "Holder",
    "Lease",
    "Outcome",
    "Proposal",
    "Proposals",
    "SamplerConfig",
    "State",
    "StorageAwayError",
    "SuccessiveHalving",
]
