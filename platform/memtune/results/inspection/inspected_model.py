"""A trained network whose memory is inspected, and how it reads a text."""

from dataclasses import dataclass

import torch

from memtune.corpora import Corpus
from memtune.corpora.batching.batches import BOUNDARY
from memtune.corpora.store.vocabulary import UNK
from memtune.errors import ConfigurationError
from memtune.models import MODELS, NeuralLanguageModel
from memtune.models.memories.memory_traces import MemoryTrace
from memtune.results.model_sources import TrainedModel, open_model
from memtune.settings import Settings


@dataclass(frozen=True)
class InspectedModel:
    """A network in evaluation, its corpus, and how its protocol and task read a sentence."""

    name: str
    network: NeuralLanguageModel
    corpus: Corpus
    """The corpus it was trained on, whose vocabulary it reads."""
    store: str
    """The store of corpora, from which it may read others."""
    carries_state: bool = False
    """Whether the state after a sentence is the state before the next one."""
    reads_boundary: bool = True
    """Whether `<eos>` is read before the first word; classifiers read words only."""
    source: TrainedModel | None = None
    """The trained model, in whose run accesses to the test split are recorded."""

    @property
    def family(self) -> str:
        """The family of the network."""
        return self.network.config.family

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.network.parameters()).device

    def find_signs(self) -> set[int]:
        """The ids of `<eos>` and, where the vocabulary has it, `<unk>`, which are not words."""
        vocabulary = self.corpus.vocabulary
        return {BOUNDARY} | ({vocabulary.get_id(UNK)} if UNK in vocabulary else set())

    def record_access(self, split: str) -> None:
        """Record that a split is about to be read, where that is a test split."""
        if self.source is not None:
            self.source.record_access(split)

    def require_trace(self, trace: MemoryTrace) -> None:
        """Raise ConfigurationError, which names the families with this trace, where the model has none."""
        if trace not in self.network.config.memory_traces:
            having = ", ".join(family for family, config in MODELS.items() if trace in config.memory_traces)
            raise ConfigurationError(
                f'{self.name} has no {trace}: its family is "{self.family}"; families with {trace}: {having}'
            )


def inspect_model(
    name: str,
    trace: MemoryTrace | None = None,
    *,
    device: str = "cpu",
    settings: Settings | None = None,
    trust_code: bool = False,
) -> InspectedModel:
    """A trained model, named as in `open_model`: `models:/ptb@champion`, `STUDY#7` or a run's id.

    Raises the errors of `open_model`, and ConfigurationError for a model that counts and for one whose family
    does not have the trace.
    """
    settings = Settings.resolve(settings)
    opened = open_model(name, settings, device, trust_code=trust_code)
    found = InspectedModel(
        opened.name,
        opened.model.eval().require_network(f"the inspection of {name}"),
        opened.corpus,
        settings.corpus_store,
        opened.config.protocol.carries_state,
        opened.config.task.prediction_unit == "tokens",
        opened,
    )
    if trace is not None:
        found.require_trace(trace)
    return found
