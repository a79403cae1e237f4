"""Fingerprints as values: what a model answers of a set of probes, and the files that hold them."""

import math
from collections.abc import Mapping
from contextlib import suppress
from statistics import fmean
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from memtune.data_frames import make_frame
from memtune.errors import ConfigurationError, MissingSourceError
from memtune.models import ModelConfig
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.plugins.source_modules import SOURCE_FIELD
from memtune.seed_statistics import Estimate, estimate_cost
from memtune.settings import Settings
from memtune.storage.local_files import write_whole
from memtune.studies.definition.study_terms import PositiveNumber
from memtune.values import Value, digest, parse

FOLDER = "fingerprints"
"""Below the home: one JSON file for each model and its terms."""
MIN_PARAMETERS = 1_000
Times = Annotated[int, BeforeValidator(int)]  # keys of JSON are texts


class ProbeTerms(Value):
    """The terms under which models are probed: only fingerprints under equal terms compare."""

    parameters: int = Field(100_000, ge=MIN_PARAMETERS)
    """Of a model without a width, and of the references."""
    epochs: float = Field(10.0, gt=0)
    batch_size: int = Field(64, ge=1)
    rates: tuple[PositiveNumber, ...] = Field((1e-3, 3e-3, 1e-2), min_length=1)
    seeds: int = Field(3, ge=1)
    settings: dict[str, float] = Field(default_factory=dict)
    """Settings of the rows, of each probe that has them."""


class ProbeResult(Value):
    """A model's accuracies on one probe, from 0 to 1, and whether they count."""

    probe: str
    corpus: str
    parameters: int
    carried_state: int | None = None
    """Numbers from word to word; None in files of earlier versions."""
    rate: float
    valid: tuple[float, ...]
    """Best validation accuracy of each seed."""
    test: dict[Times, tuple[float, ...]]
    """Test accuracy of each seed on rows of so many times the trained length: 1, and 2 and 4 where asked."""
    chance: float
    """Of a guess among the answers that validation asks for."""
    ceiling: float = 1.0
    """The share of the answers of validation for which training asks too."""
    reference: str | None = None
    """The reference that was trained because the model itself did not solve the probe."""
    reference_valid: float | None = None
    is_learnable: bool = True
    """Whether the model or a reference solves the probe under the terms; else the accuracies do not count."""

    def compute_threshold(self, solved: float) -> float:
        """The accuracy from which a model counts as having solved the probe: a share of what is above chance.

        Infinite where no answer can be better than chance.
        """
        above = self.ceiling - self.chance
        return self.chance + solved * above if above > 0 else math.inf

    @property
    def estimates(self) -> dict[int, Estimate]:
        """The share of wrong test answers over the seeds, as `test`."""
        return {times: estimate_cost([1 - share for share in shares]) for times, shares in self.test.items()}


class Fingerprint(Value):
    """The results of a model on a set of probes: what `memtune probe --json` prints."""

    name: str
    model: dict[str, Any]
    """The fields that the table of the model names; without a width where it was fitted."""
    terms: ProbeTerms
    results: tuple[ProbeResult, ...]

    def describes(self, model: ModelConfig) -> bool:
        """Whether a model has what the table names, apart from its width.

        A table with a part that is not loaded here, such as the mixer of a plug-in, describes none.
        """
        if model.family != self.model.get("family"):
            return False
        try:
            named = {name: value for name, value in self.model.items() if name != "width"}
            return dump_named_fields(named) == dump_named_fields(named, model)
        except (ConfigurationError, MissingSourceError):
            return False

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each probe and multiple of its trained length.

        `low` and `high` bound the accuracy over seeds, and are NaN without an interval.
        """
        return make_frame(
            {
                "probe": result.probe,
                "times_length": times,
                "accuracy": fmean(result.test[times]),
                "low": low,
                "high": high,
                "chance": result.chance,
                "ceiling": result.ceiling,
                "is_learnable": result.is_learnable,
                "reference": result.reference,
                "reference_valid": result.reference_valid,
                "rate": result.rate,
                "parameters": result.parameters,
                "carried_state": result.carried_state,
            }
            for result in self.results
            for times, estimate in result.estimates.items()
            for low, high in [estimate.compute_interval(Objective.ACCURACY) or (math.nan, math.nan)]
        )

    def __repr__(self) -> str:
        return f"Fingerprint({self.name}: {format_count(len(self.results), 'probe')})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(index=False))


def dump_named_fields(table: Mapping[str, Any], model: ModelConfig | None = None) -> dict[str, Any]:
    """The fields of a model, by default of the table's own, that a table names.

    Those of a user's family or mixer have the SHA-256 of its source.
    """
    # A family may need some width, which is not among the fields unless the table has it.
    own: ModelConfig = model or parse(ModelConfig, {"width": 8, **table}, "model")
    return own.model_dump(mode="json", include={*table, SOURCE_FIELD})


def store_fingerprint(found: Fingerprint, settings: Settings) -> None:
    """Write a fingerprint into the home, in place of one of the same model, terms and probes."""
    identity = digest(found.model, found.terms, [result.probe for result in found.results])[:12]
    path = settings.home / FOLDER / f"{found.name}-{identity}.json"
    write_whole(path, found.model_dump_json(indent=1).encode())


def list_fingerprints(settings: Settings) -> list[Fingerprint]:
    """The fingerprints of this home, the oldest first, without files that this version cannot read."""
    found = []
    for path in sorted((settings.home / FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime):
        with suppress(ValueError):
            found.append(Fingerprint.model_validate_json(path.read_text(encoding="utf-8")))
    return found
