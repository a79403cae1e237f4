"""Checks of a study before it runs: whether this machine, or a cluster, can train what its space holds."""

import logging
import os
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch

from memtune.data_frames import make_frame, render_table
from memtune.errors import ConfigurationError, StudyError
from memtune.models.layers.placed_dropout import explain_unused_dropout
from memtune.number_format import format_count
from memtune.settings import Settings
from memtune.studies.definition.resolved_study import BUDGET_SAMPLES, ResolvedStudy
from memtune.studies.definition.study import Study
from memtune.studies.definition.study_loader import StudySource, open_study, resolve_study
from memtune.studies.definition.study_terms import Repeats, list_fields, name_alternative
from memtune.tracking import check_tracking
from memtune.training import TrialConfig, check_device, compute_sizes, measure_seconds_per_token
from memtune.training.memory_footprint import measure_free_bytes

log = logging.getLogger(__name__)

DRY_RUN_SAMPLES = 5
"""At least, where the space has so many configurations; as many are measured at most."""
MAX_SAMPLES = 30
"""At most, where the study has more alternatives."""
MAX_DRAWS = 50
"""Draws of these samples, of which some may be equal."""
DEVICE_SAMPLES = 20
"""Configurations of which one must be trainable on this machine."""
MEASURED_BYTES = 2**32
"""Largest memory of a training whose cost is measured: larger ones would take long to build."""


class DryRun(NamedTuple):
    """A checked study, and configurations that its space holds."""

    resolved: ResolvedStudy
    samples: list[TrialConfig]

    @property
    def id(self) -> str:
        """The study's id."""
        return self.resolved.id

    @property
    def refusals(self) -> list[str | None]:
        """Why the study would not start each of the samples; None for one that may start."""
        return [
            self.resolved.limits.get_refusal_reason(sample.model_dump(mode="json")) for sample in self.samples
        ]

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each configuration: its sizes, and what the study searches.

        The columns are named as those of `show_study`; `refused` says why the study would not start it.
        """

        def describe(sample: TrialConfig, refusal: str | None) -> dict[str, Any]:
            fields, sizes = list_fields(sample), compute_sizes(sample, self.resolved.corpus).model_dump()
            return {
                "alternative": name_alternative(sample, self.resolved.study.compare),
                "family": sample.model.family,
                **{"carried_state" if name == "state" else name: size for name, size in sizes.items()},
                **{name: fields[name] for name in self.resolved.searched_fields if name in fields},
                "refused": refusal,
            }

        return make_frame(map(describe, self.samples, self.refusals))

    def __repr__(self) -> str:
        return f"DryRun({self.id}: {format_count(len(self.samples), 'sample')})"

    def _repr_html_(self) -> str:
        question = self.resolved.study.question
        return render_table(f"study {self.id}: {question}; samples, nothing was started", self.to_frame())


def dry_run(
    study: StudySource, overrides: Mapping[str, Any] | None = None, settings: Settings | None = None
) -> DryRun:
    """Check a study as `run_study` would and draw some of its configurations; start nothing.

    `study` is a TOML file or the name of a packaged study, a mapping with the content of a file, or a Study;
    `overrides` replace fields by dotted name. Raises what `run_study` raises before it starts trials.
    """
    settings = Settings.resolve(settings)
    path, opened = open_study(study, overrides)
    resolved = check_study(path, opened, settings)
    check_tracking(settings.tracking_uri, resolved.corpus.name)
    return DryRun(resolved, _draw_samples(resolved))


def _draw_samples(resolved: ResolvedStudy) -> list[TrialConfig]:
    """Different configurations: one of each alternative, and five or all of the space in any case."""
    space, compared, first = resolved.space, resolved.study.compare, resolved.study.seed
    size = space.size()
    is_small = size is not None and size <= DRY_RUN_SAMPLES
    points = [*space.points()] if is_small else space.list_alternatives(compared) or [{}]
    fewest = size if size is not None and is_small else DRY_RUN_SAMPLES
    samples, missing = list[TrialConfig](), {*resolved.alternatives}
    for draw in range(MAX_DRAWS):
        for sample in resolved.draw([first + draw], points[draw % len(points)]):
            alternative = name_alternative(sample, compared)
            if sample not in samples and (len(samples) < fewest or alternative in missing):
                samples.append(sample)
                missing.discard(alternative)
        if len(samples) == MAX_SAMPLES or (len(samples) >= fewest and not missing):
            break
    return samples


class CoreSeconds(NamedTuple):
    """Core seconds of a training on this machine with its validations, as means over samples."""

    trial: float
    """Of a trial; counting costs nothing here."""
    repeat: float
    """Of a repeat, which a model that counts has none of."""


def measure_core_seconds(resolved: ResolvedStudy, samples: Sequence[TrialConfig]) -> CoreSeconds | None:
    """What the trainings of a study take, measured on the first five samples that may start.

    None where a sample needs a GPU or more memory than a check should take, and without samples. Sets the
    number of threads of torch to that of a trial.
    """
    measured, samples = list[float](), samples[:DRY_RUN_SAMPLES]
    resources, limit = resolved.study.resources, min(MEASURED_BYTES, measure_free_bytes() // 2)
    torch.set_num_threads(resources.cpus_per_trial)
    trained = [sample for sample in samples if sample.training is not None]
    for sample in trained:
        needed = compute_sizes(sample, resolved.corpus).memory or 0
        if resources.gpus_per_trial or needed > limit:
            return None
        measured.append(measure_seconds_per_token(sample, resolved.corpus) * resolved.trial_tokens)
    if not samples:
        return None
    return CoreSeconds(sum(measured) / len(samples), fmean(measured) if measured else 0.0)


def check_study(
    path: Path | None, study: Study, settings: Settings, address: str | None = None
) -> ResolvedStudy:
    """Resolve a study and check that it can run on this machine or on the cluster at `address`.

    `path` is the study's file, None for the study of a program. Does not contact the tracking server. Raises
    a MemtuneError that names what is wrong, and warns of terms of the study that have no effect.
    """
    resolved = resolve_study(path, study, settings)
    _warn_of_ignored_priors(resolved)
    _warn_of_unused_repeats(resolved)
    _warn_of_unused_dropout(resolved)
    has_cluster = bool(address or os.environ.get("RAY_ADDRESS"))
    _check_resources(resolved, has_cluster)
    if not has_cluster:
        _check_trainings(resolved)
    return resolved


def _warn_of_ignored_priors(resolved: ResolvedStudy) -> None:
    study = resolved.study
    sampler, stated = study.sampler, study.list_stated_priors()
    if not sampler.follows_prior(len(study.objectives)):
        stated += ["sampler.prior"] * (sampler.prior not in (None, "none"))
        reason = 'only the sampler "tpe" with one objective follows a prior'
    elif sampler.prior is not None:
        reason = f'sampler.prior = "{sampler.prior}" replaces the priors of parameters'
    else:
        return
    if stated:
        fields = ", ".join(stated)
        log.warning("%s: these priors are ignored, because %s: %s", resolved.place, reason, fields)


def _warn_of_unused_repeats(resolved: ResolvedStudy) -> None:
    """No refusal, as of other terms without effect: studies of earlier versions have them."""
    repeats, usual = resolved.study.repeats, Repeats()
    unused = [name for name in ("seeds", "precision") if getattr(repeats, name) != getattr(usual, name)]
    if unused and not repeats.are_asked_for:
        names, verb = " and ".join(unused), "have" if len(unused) > 1 else "has"
        log.warning(
            "%s: %s under [repeats] %s no effect without best or until; add best = 2",
            resolved.place,
            names,
            verb,
        )


def _warn_of_unused_dropout(resolved: ResolvedStudy) -> None:
    models = [sample.model for sample in islice(resolved.draw(range(BUDGET_SAMPLES)), DEVICE_SAMPLES)]
    problems = [explain_unused_dropout(model) for model in models if getattr(model, "dropout", 0.0)]
    if problems and all(problems):
        log.warning("%s: %s", resolved.place, problems[0])


def _check_resources(resolved: ResolvedStudy, has_cluster: bool) -> None:
    """Raise StudyError where a trial needs GPUs or cores that neither this machine nor a cluster has."""
    asked = resolved.study.resources
    if asked.gpus_per_trial and not (torch.cuda.is_available() or has_cluster):
        raise StudyError(
            f"{resolved.place} requests GPUs (gpus_per_trial = {asked.gpus_per_trial}) and this "
            "machine has none; submit it to a cluster, or run with --gpus-per-trial 0"
        )
    cores = os.cpu_count() or 1
    if asked.cpus_per_trial > cores and not has_cluster:
        raise StudyError(
            f"{resolved.place} requests {asked.cpus_per_trial} cores per trial and this machine "
            f"has {cores}; lower cpus_per_trial, or submit it to a cluster"
        )


def _check_trainings(resolved: ResolvedStudy) -> None:
    """Raise StudyError where this machine cannot compute any trial, or any repeat, in its precision."""
    repeats = resolved.study.repeats
    samples = [*islice(resolved.draw(range(BUDGET_SAMPLES)), DEVICE_SAMPLES)]
    for precision in dict.fromkeys([None, repeats.precision if repeats.are_asked_for else None]):
        problems = [_find_device_problem(resolved, sample, precision) for sample in samples]
        if all(problems):
            raise StudyError(f"{resolved.place}: {problems[0]}")


def _find_device_problem(
    resolved: ResolvedStudy, sample: TrialConfig, precision: str | None
) -> ConfigurationError | None:
    """Why this machine cannot train a configuration, in another precision where one is given; or None."""
    if sample.training is None:
        return None
    changes = {"precision": precision} if precision else {}
    try:
        check_device(
            sample.training.model_copy(update=changes), torch.device(resolved.limits.select_device(sample))
        )
    except ConfigurationError as error:
        return error
    return None
