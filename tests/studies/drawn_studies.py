"""Valid studies over all options, drawn from a seed."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.studies.simulated_training import Truth

OPTIMISER = """
[training.optimiser]
kind = { choice = ["adam", "sgd"] }
learning_rate = { float = [1e-3, 1e-1], log = true }
"""
SPACES = {
    "lstm": "width = { int = [1, 6] }\nlayers = { int = [1, 2] }\ndropout = 0.0",
    "rnn": 'width = { int = [1, 6] }\nactivation = { choice = ["relu", "sigmoid"] }\ndropout = 0.0',
    "stack_lstm": "width = { int = [2, 5] }\ndropout = 0.3",
    "recurrent_memory": "width = { int = [2, 5] }\nmemory_size = { choice = [2, 4] }",
    "scrn": "width = 3",
    "kneser_ney": "order = { int = [2, 5] }",
}
"""Of each family but the last two many configurations; `scrn` has one."""
COMPARED = ("model.layers", "model.activation", "training.optimiser.kind")


@dataclass
class DrawnStudy:
    """A study file's content, the truth of its trainings, and what happens to its drivers."""

    name: str
    document: dict[str, Any]
    truth: Truth
    workers: int
    ends: list[tuple[str, int]] = field(default_factory=list)
    """What ends its drivers after so many reports."""

    @property
    def is_repeatable(self) -> bool:
        """Whether interruptions change nothing: no clock, no budget of work done, no order of workers."""
        limits = {"time", "tokens", "cpu_hours", "money"} & self.document["budget"].keys()
        return bool(self.ends) and self.workers == 1 and not limits and not self.truth.faulty


def write_spaces(folder: Path) -> None:
    """The files of the spaces that studies are drawn over."""
    for family, model in SPACES.items():
        constant = '\n[training.optimiser]\nkind = "adam"\nlearning_rate = 0.01\n'
        optimiser = {"kneser_ney": "", "scrn": constant}.get(family, OPTIMISER)
        (folder / f"{family}.toml").write_text(f'[model]\nfamily = "{family}"\n{model}\n{optimiser}')


def draw_study(seed: int) -> DrawnStudy:
    """The study of a seed."""
    draw = random.Random(seed)
    is_accuracy = draw.random() < 0.15
    families = draw.sample(list(SPACES), draw.choice([1, 2, 2, 3, 4]))
    if is_accuracy:
        families = [family for family in families if family != "kneser_ney"] or ["lstm"]
    counts_alone = families == ["kneser_ney"]
    document: dict[str, Any] = {
        "question": "Which is best?",
        "corpus": "asked",
        "spaces": [f"{family}.toml" for family in families],
    }
    if is_accuracy:
        document["task"] = {"kind": "sentiment"}
    reports = draw.choice([1, 3, 3, 5])
    if not counts_alone:
        document["training"] = _draw_training(draw, reports)
    has_objectives = draw.random() < 0.15 and "kneser_ney" not in families
    document["sampler"] = _draw_sampler(draw, has_objectives)
    if document["sampler"]["kind"] == "grid" and not counts_alone:
        document["training"]["optimiser"] = {"learning_rate": {"choice": [0.01, 0.1]}}
    if has_objectives:
        document["objectives"] = ["value", draw.choice(["parameters", "multiply_adds", "state", "memory"])]
    elif draw.random() < 0.7 and reports > 1 and not counts_alone:
        document["early_stopping"] = _draw_rule(draw)
    if draw.random() < 0.3:
        limits = [{"max_parameters": 400}, {"max_parameters": 10}, {"max_state": 8}]
        document["champion"] = draw.choice(limits)
    if draw.random() < 0.35:
        document["compare"] = draw.choice(COMPARED)
    if draw.random() < 0.5:
        document["prices"] = {"cpu_hour": 0.5}
    document["budget"] = _draw_budget(draw, "prices" in document, is_accuracy)
    if draw.random() < 0.75:
        document["repeats"] = _draw_repeats(draw)
    if draw.random() < 0.15 and not counts_alone:
        document["training"]["precision"] = "bfloat16"
        document["repeats"] = {**_draw_repeats(draw), "precision": "float32"}
    if draw.random() < 0.2 and not is_accuracy:
        document["protocol"] = {"kind": "stream"}
    if draw.random() < 0.1:
        document["points"] = "papers"
    _drop_what_is_not_searched(document, families)
    compare = document.get("compare", "model.family")
    ends = [(draw.choice(["signal", "kill"]), at) for at in sorted(draw.sample(range(1, 40), 3))]
    return DrawnStudy(
        f"drawn{seed}",
        document,
        _draw_truth(draw, seed, compare, is_accuracy),
        draw.choice([1, 1, 2, 3]),
        ends if draw.random() < 0.5 else [],
    )


def _drop_what_is_not_searched(document: dict[str, Any], families: list[str]) -> None:
    """Leave out a compared field that no space has."""
    searches_optimiser = not set(families) <= {"kneser_ney", "scrn"}
    text = "".join(SPACES[family] for family in families) + OPTIMISER * searches_optimiser
    if "compare" in document and f"{document['compare'].rpartition('.')[2]} =" not in text:
        del document["compare"]


def _draw_training(draw: random.Random, reports: int) -> dict[str, Any]:
    training: dict[str, Any] = {"tokens": 300 * reports, "report_every": 300}
    if draw.random() < 0.2:
        training = {"epochs": reports}
    if draw.random() < 0.15:
        training["patience"] = 1
    return training


def _draw_sampler(draw: random.Random, has_objectives: bool) -> dict[str, Any]:
    kinds = ["tpe", "random", "qmc", "nsga2"] + ["grid"] * (not has_objectives)
    return {"kind": draw.choice(kinds), "seed": draw.randrange(100), "startup_trials": draw.choice([2, 10])}


def _draw_rule(draw: random.Random) -> dict[str, Any]:
    kind = draw.choice(["none", "successive_halving", "promotion", "hyperband"])
    if kind == "none":
        return {"kind": kind}
    return {"kind": kind, "factor": draw.choice([2, 3]), "per_family": draw.random() < 0.7}


def _draw_budget(draw: random.Random, has_prices: bool, is_accuracy: bool) -> dict[str, Any]:
    budget: dict[str, Any] = {"trials": draw.choice([1, 2, 4, 6, 9])}
    optional = {
        "tokens": draw.choice([1500, 4000]),
        "time": draw.choice([8, 20, 60]),
        "cpu_hours": draw.choice([0.003, 0.02]),
        "target": 60.0 if is_accuracy else 25.0,
        "no_improvement": draw.choice([1, 3]),
        "max_parameters": 100_000,
        "min_parameters": 10,
    }
    if has_prices:
        optional["money"] = draw.choice([0.001, 0.01])
    for name in draw.sample(list(optional), draw.choice([0, 0, 1, 1, 2])):
        budget[name] = optional[name]
    return budget


def _draw_repeats(draw: random.Random) -> dict[str, Any]:
    if draw.random() < 0.5:
        indifference = draw.choice([0.005, 0.05])
        return {"until": "decided", "max_seeds": draw.choice([3, 4, 6]), "indifference": indifference}
    return {"best": draw.choice([1, 2, 3]), "seeds": draw.choice([2, 3, 4])}


def _draw_truth(draw: random.Random, seed: int, compare: str, is_accuracy: bool) -> Truth:
    return Truth(
        seed,
        compare,
        unit=0.1 if is_accuracy else 1.0,
        spread=draw.choice([0.0, 0.05, 0.3]),
        noise=draw.choice([0.0, 0.005, 0.05]),
        late=draw.choice([0.0, 0.0, 0.4]),
        diverging=draw.choice([0.0, 0.0, 0.2, 0.6]),
        failing=draw.choice([0.0, 0.0, 0.1]),
        faulty=draw.choice([0.0, 0.0, 0.3]),
    )


def list_alternatives(drawn: DrawnStudy) -> frozenset[str]:
    """The families of a study; nothing where another field is compared."""
    families = (space.removesuffix(".toml") for space in drawn.document["spaces"])
    return frozenset() if "compare" in drawn.document else frozenset(families)
