"""A user's sampler from one file: settings of its own in a study, which make a sampler of Optuna."""

from pathlib import Path

from memtune.settings import Settings
from tests.unit.studies.study_files import resolve

SAMPLER = """
from typing import Literal
from optuna.samplers import BaseSampler, PartialFixedSampler, RandomSampler
from memtune.search import SamplerConfig, SamplerRequest

class FixedWidthConfig(SamplerConfig):
    kind: Literal["fixed_width"] = "fixed_width"
    width: int = 4
    def make_sampler(self, request: SamplerRequest) -> BaseSampler:
        return PartialFixedSampler({"model.width": self.width}, RandomSampler(seed=request.seed))
"""


def test_a_users_sampler_proposes_and_its_source_decides_which_study_it_is(
    study_file: Path, settings: Settings
) -> None:
    file = study_file.with_name("my_sampler.py")
    terms = {"models": [file.name], "sampler": {"kind": "fixed_width", "width": 8}}
    file.write_text(SAMPLER)
    resolved = resolve(study_file, settings, **terms)
    proposals = resolved.open_proposals()
    drawn = [proposals.ask() for _ in range(4)]
    assert [each and each.configuration["model"]["width"] for each in drawn] == [8] * 4
    file.write_text(f"{SAMPLER}# changed\n")
    assert resolve(study_file, settings, **terms).id != resolved.id
