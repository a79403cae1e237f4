"""A user's sampler from one file: settings of its own in a study, which make a sampler of Optuna."""

from pathlib import Path

from memtune.settings import Settings
from tests.unit.studies.study_files import resolve

SAMPLER = '''
from typing import Literal
from optuna.samplers import BaseSampler, PartialFixedSampler, RandomSampler
from memtune.search import SamplerConfig, SamplerRequest

class FixedWidthConfig(SamplerConfig):
    """One width."""
    kind: Literal["fixed_width"] = "fixed_width"
    width: int = 4
    def make_sampler(self, request: SamplerRequest) -> BaseSampler:
        return PartialFixedSampler({"model.width": self.width}, RandomSampler(seed=request.seed))
'''
STUDY_TOML = """question = "Is a rate good at one width?"
corpus = "tiny"
models = ["my_sampler.py"]
spaces = ["lstm"]

[model]
width = { choice = [4, 8] }

[training]
tokens = 900
report_every = 300

[sampler]
kind = "fixed_width"
width = 8
"""


def test_a_users_sampler_proposes_and_its_source_decides_which_study_it_is(
    tmp_path: Path, settings: Settings
) -> None:
    file, study = tmp_path / "my_sampler.py", tmp_path / "study.toml"
    file.write_text(SAMPLER)
    study.write_text(STUDY_TOML)
    resolved = resolve(study, settings)
    proposals = resolved.open_proposals()
    drawn = [proposals.ask() for _ in range(4)]
    assert [each and each.configuration["model"]["width"] for each in drawn] == [8] * 4
    file.write_text(f"{SAMPLER}# changed\n")
    assert resolve(study, settings).id != resolved.id
