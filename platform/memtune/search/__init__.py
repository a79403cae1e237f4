"""Samplers, early stopping, and the storage of a study's trials. The only package that imports Optuna."""

from memtune.search.database.outage_buffer import StorageUnavailableError
from memtune.search.database.study_lease import Lease
from memtune.search.early_stopping import AnyEarlyStopping, EarlyStopping, Rule
from memtune.search.importance import MIN_IMPORTANCE_TRIALS, MIN_PARAMETER_TRIALS, ParameterImportance
from memtune.search.proposals import Candidates, Proposals
from memtune.search.quantities import DEFAULT_OBJECTIVES, QUANTITIES, ObjectiveName
from memtune.search.samplers import SAMPLERS
from memtune.search.samplers.observed_values import MultiObjective
from memtune.search.samplers.prior_trials import MAX_PRIOR_POINTS
from memtune.search.samplers.sampler import SamplerConfig, SamplerRequest
from memtune.search.study_reader import REPEATS_SUFFIX, CompleteTrial, StoredStudy, StudyReader
from memtune.search.trial_store import FORMAT_KEY, STUDY_FORMAT, StoredTrial, check_format
