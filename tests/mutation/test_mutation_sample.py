"""The sample of mutants: every module is in it, and the seed decides it."""

from collections import Counter

from tests.mutation.__main__ import draw_sample, get_module

MUTANTS = [
    *(f"memtune.search.proposals.xǁProposalsǁask__mutmut_{number}" for number in range(90)),
    *(f"memtune.search.samplers.joint_space.x__draw__mutmut_{number}" for number in range(8)),
    "memtune.search.warm_start.x_read__mutmut_1",
]


def test_a_mutant_names_its_module():
    assert sorted({get_module(name) for name in MUTANTS}) == [
        "search.proposals",
        "search.samplers.joint_space",
        "search.warm_start",
    ]


def test_modules_are_in_the_sample_in_proportion_and_none_is_left_out():
    counts = Counter(map(get_module, draw_sample(MUTANTS, size=20, seed=0)))
    assert counts == {"search.proposals": 18, "search.samplers.joint_space": 3, "search.warm_start": 1}


def test_a_module_can_be_in_the_sample_as_a_whole():
    sample = draw_sample(MUTANTS, size=1, seed=0, whole=["search.samplers.joint_space"])
    assert set(MUTANTS[90:98]) < set(sample)


def test_the_seed_decides_the_sample():
    samples = [draw_sample(MUTANTS, 20, seed) for seed in (0, 0, 1)]
    assert samples[0] == samples[1] != samples[2]
    assert samples[0] == draw_sample(MUTANTS[::-1], 20, 0)
