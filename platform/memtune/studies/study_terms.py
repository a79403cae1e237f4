"""The terms of a study that may change between its runs: budget, resources and repeats."""

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from memtune.values import Value

__all__ = ["Budget", "GpuShare", "Repeats", "Resources"]

SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: object) -> object:
    """A duration such as "90s", "15m", "2h" or "1d" in seconds; other values unchanged."""
    if not isinstance(text, str):
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", text)
    if not found:
        raise ValueError(
            f'a duration is a number and a unit such as "90s", "15m", "2h" or "1d", got "{text}"'
        )
    return float(found[1]) * SECONDS_PER_UNIT[found[2]]


Duration = Annotated[float, BeforeValidator(parse_duration), Field(gt=0)]
BYTES_PER_UNIT = {"GB": 10**9, "GiB": 2**30, "MB": 10**6, "MiB": 2**20}


def parse_size(text: object) -> object:
    """A size such as "24GB" or "80 GiB" in bytes; other values unchanged."""
    if not isinstance(text, str):
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(GB|GiB|MB|MiB)\s*", text)
    if not found:
        raise ValueError(f'a size is a number and a unit such as "24GB" or "80GiB", got "{text}"')
    return int(float(found[1]) * BYTES_PER_UNIT[found[2]])


ByteSize = Annotated[int, BeforeValidator(parse_size), Field(gt=0)]
GpuShare = Annotated[float, Field(ge=0)] | Literal["fit"]


class Budget(Value):
    """Limits of a study: configurations, time, and the size of a model."""

    trials: int = Field(default=12, ge=1, description="different configurations started in all")
    time: Duration | None = Field(default=None, description="wall-clock time of the search, resumed ones too")
    max_parameters: int | None = Field(default=None, ge=1, description="larger models are never started")
    min_parameters: int | None = Field(default=None, ge=1, description="smaller models are never started")


class Resources(Value):
    """The resources of one trial."""

    cpus_per_trial: int = Field(default=1, ge=1, description="cores, and threads of torch")
    gpus_per_trial: GpuShare = Field(
        default=0.0, description='a share of a GPU below 1, whole ones, or "fit": as the memory of each trial'
    )
    gpu_memory: ByteSize | None = Field(
        default=None, description='of one GPU, for "fit"; default: read from the nodes'
    )
    max_concurrent: int | None = Field(default=None, ge=1, description="trials at once; default: what fits")
    checkpoint_every: Duration = Field(default=600.0, description="where reports are further apart")
    max_silence: Duration = Field(
        default=3600.0, description="a worker without a report for so long is killed and its trial retried"
    )

    @model_validator(mode="after")
    def _check_max_silence(self) -> Self:
        if self.max_silence <= self.checkpoint_every:
            raise ValueError(
                f"max_silence = {self.max_silence:,.0f} s must be longer than checkpoint_every = "
                f"{self.checkpoint_every:,.0f} s, because a worker reports with each checkpoint"
            )
        return self


class Repeats(Value):
    """Repeats of the best configurations under other seeds, which show the spread of a result."""

    best: int = Field(default=0, ge=0, description="how many configurations")
    seeds: int = Field(default=3, ge=2, description="seeds in all, the search's own included")
