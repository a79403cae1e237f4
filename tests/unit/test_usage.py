"""A trial's usage adds up over its workers."""

from types import SimpleNamespace

import pytest

from memtune import usage
from memtune.usage import NodeSeconds, Usage, UsageMeter, add_usages


def test_a_meter_adds_reserved_cores_and_gpus_to_what_earlier_workers_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(usage, "time", SimpleNamespace(monotonic=lambda: now[0]))
    first = UsageMeter(cpus=2, gpus=0.5, node_type="small")
    now[0] += 10.0
    used = first.measure(500)
    assert used == Usage(tokens=500, nodes={"small": NodeSeconds(cpu=20.0, gpu=5.0)})

    second = UsageMeter(cpus=4, node_type="large")
    second.restore(used, 500)
    now[0] += 1.0
    assert second.measure(700) == Usage(
        tokens=700, nodes={"small": NodeSeconds(cpu=20.0, gpu=5.0), "large": NodeSeconds(cpu=4.0)}
    )


def test_tokens_that_another_study_trained_do_not_count() -> None:
    meter = UsageMeter()
    meter.restore(Usage(), 500)
    assert meter.measure(700).tokens == 200


def test_a_sum_has_the_seconds_of_each_type_of_node() -> None:
    total = add_usages(
        [
            Usage(tokens=1, nodes={"a": NodeSeconds(cpu=1.0)}),
            Usage(tokens=2, nodes={"a": NodeSeconds(gpu=2.0), "b": NodeSeconds(cpu=3.0)}),
        ]
    )
    assert total == Usage(tokens=3, nodes={"a": NodeSeconds(cpu=1.0, gpu=2.0), "b": NodeSeconds(cpu=3.0)})
    assert (total.cpu_seconds, total.gpu_seconds) == (4.0, 2.0)
