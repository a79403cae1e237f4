"""What must hold of every study, whatever its options: the same facts, computed again from its trials alone.

A fault is a sentence. Everything is read from what the surfaces print, not from the values behind them.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from memtune.objective import Objective
from tests.studies.drawn_studies import list_alternatives
from tests.studies.surfaces import Surfaces

P_VALUE = re.compile(r"\bp [=<] 0\.\d+")
WHOLE_P_VALUE = re.compile(
    r"p [=<] 0\.\d+, (Welch's t-test over \d+ seeds( and the deviations of \d+ others?)?"
    r", corrected for repeated looks( and [a-z0-9 ]+)?"
    r"|sign test of differences over [\d,]+ (sentences|questions|examples))"
)
OPEN = ("waiting", "running", "interrupted")
TOLERANCE = 1e-9


def list_faults(found: Surfaces) -> list[str]:
    """Everything that is wrong with what the surfaces say of a study."""
    checks = (
        _check_trials,
        _check_ranking,
        _check_headline,
        _check_caveats,
        _check_turns,
        _check_leaders,
        _check_numbers,
        _check_p_values,
    )
    return [fault for check in checks for fault in check(found)]


def count_claims(found: Surfaces) -> tuple[int, int]:
    """How many differences the verdict calls significant, and how many of these are none or the other way."""
    verdict, truth = found.detail["verdict"], found.drawn.truth
    if verdict is None:
        return 0, 0
    configs = {trial["name"]: found.configs[trial["identity"]] for trial in found.detail["trials"]}
    noiseless = replace(truth, noise=0.0)
    claims = [
        re.sub(r".*\((.*)\)", r"\1", other["name"])
        for other in verdict["comparisons"]
        if other["certainty"] == "significant"
    ]
    own = noiseless.find_final_cost(configs[verdict["winner"]])
    return len(claims), sum(noiseless.find_final_cost(configs[name]) <= own for name in claims)


def compare_endings(found: Surfaces, again: Surfaces) -> Iterator[str]:
    """What differs between a study that was interrupted and resumed, and the same one without a break."""
    for name in ("alternatives", "verdict"):
        own, other = (_drop_measures(each.detail[name]) for each in (found, again))
        if own != other:
            yield f"interrupted: {own}; without a break: {other}"


def _drop_measures(value: Any) -> Any:
    """A value without the name of the study and the time of a training: a lost report is trained twice."""
    if isinstance(value, str):
        return re.sub(r"about \S+ core h: memtune search \S+", "", value)
    if isinstance(value, Mapping):
        return {
            name: _drop_measures(own)
            for name, own in value.items()
            if name not in ("cpu_hours", "gpu_hours", "money", "seconds")
        }
    return [_drop_measures(own) for own in value] if isinstance(value, list) else value


def list_answers(found: Surfaces) -> dict[str, str]:
    """Every text that names a winner, by the surface."""
    return {
        "the terminal": found.terminal,
        "study show": found.shown,
        "the report": found.page,
        "the report's JSON": json.dumps(found.detail["verdict"], ensure_ascii=False),
        "MLflow's description": found.tags.get("mlflow.note.content", ""),
        "MLflow's tag": found.tags.get("memtune.tests", ""),
    }


def _label(state: str) -> str:
    return "open" if state in OPEN else state


def _check_trials(found: Surfaces) -> Iterator[str]:
    """Each trial has one state and one figure."""
    rows = {row.trial: row for row in found.rows}
    for trial in found.detail["trials"]:
        row = rows.get(trial["identity"])
        if row is None:
            yield f"{trial['name']} is not in MLflow"
            continue
        if row.state.label != _label(trial["state"]):
            yield f"{trial['name']} is {trial['state']}, in MLflow {row.state.label}"
        if row.tokens != trial["tokens"] and trial["curve"]:
            yield f"{trial['name']} has {trial['tokens']} tokens, in MLflow {row.tokens}"
        if (row.figure is None) != (trial["figure"] is None) or (
            row.figure is not None and not math.isclose(row.figure, trial["figure"], rel_tol=TOLERANCE)
        ):
            yield f"{trial['name']} has {trial['figure']}, in MLflow {row.figure}"
        if row.name != trial["name"]:
            yield f"{trial['name']} is {row.name} in MLflow"
    for ended in found.detail["ended_early"]:
        label = _label(ended["state"])
        reference = ended["name"].removeprefix(f"{ended['alternative']} ")
        if f"{ended['name']} {label} " not in found.page:
            yield f"the report does not say that {ended['name']} is {label}"
        if not re.search(
            rf"{re.escape(reference)} {re.escape(ended['alternative'])} .*? {label}\b", found.shown
        ):
            yield f"study show does not say that {ended['name']} is {label}"


def _check_ranking(found: Surfaces) -> Iterator[str]:
    """The leaderboards of the report and of MLflow have the same places and figures."""
    rows = {row.trial: row for row in found.rows}
    for entry in found.report["leaderboard"]["entries"]:
        row = rows.get(entry["identity"])
        if row is None:
            yield f"{entry['name']} is not ranked in MLflow"
        elif row.place != entry["place"]:
            yield f"{entry['name']} has place {entry['place']}, in MLflow {row.place}"
        elif not math.isclose(row.ranked_figure or math.nan, entry["figure"], rel_tol=TOLERANCE):
            yield f"{entry['name']} has {entry['figure']}, in MLflow {row.ranked_figure}"


def _check_headline(found: Surfaces) -> Iterator[str]:
    """Every surface has the same sentence."""
    verdict = found.detail["verdict"]
    if verdict is None:
        if any(_is_rankable(trial) for trial in _list_full(found)):
            yield "a trial of full length has no verdict"
        return
    for surface, text in list_answers(found).items():
        if text and verdict["headline"] not in " ".join(text.split()):
            yield f"{surface} lacks the headline {verdict['headline']!r}"
    sure = {other["certainty"] for other in verdict["comparisons"]}
    if not verdict["is_undecided"] and len(sure) == 1 and f" {next(iter(sure))} " not in found.page:
        yield f"the report does not say {sure}"
    for surface, text in {"study list": found.listed, "MLflow": found.tags.get("memtune.winner", "")}.items():
        if text and ("undecided: " in text) != verdict["is_undecided"]:
            yield f"{surface} does not say whether the study is undecided: {text}"


def _is_rankable(trial: dict[str, Any]) -> bool:
    return bool(trial["curve"])


def _find_length(found: Surfaces) -> float:
    """Full length: the most tokens of a complete network, or of any trial where none is complete."""
    validated = [trial for trial in found.detail["trials"] if _is_rankable(trial)]
    first = min((int(tokens) for trial in validated for tokens in trial["curve"]), default=0)
    planned = [
        found.configs[trial["identity"]].count_tokens(lambda: first)  # a report after each epoch
        for trial in validated
        if trial["state"] == "complete" and found.configs[trial["identity"]].training is not None
    ]
    epoch = max((trial["tokens"] for trial in validated), default=0)
    return max(planned, default=0) or epoch


def _list_full(found: Surfaces) -> list[dict[str, Any]]:
    """The trials that compete."""
    length = _find_length(found)
    return [
        trial
        for trial in found.detail["trials"]
        if _is_rankable(trial) and (trial["state"] == "complete" or trial["tokens"] >= 0.99 * length)
    ]


def _check_caveats(found: Surfaces) -> Iterator[str]:
    """What the study does not know is in each text that names a winner."""
    verdict = found.detail["verdict"]
    if verdict is None:
        return
    behind = [other for other in verdict["comparisons"][1:] if other["certainty"] != "significant"]
    decided = bool(behind) and verdict["comparisons"][0]["certainty"] == "significant"
    still_open = [rf"Still open against: .*{re.escape(other['name'])}" for other in behind if decided]
    for caveat in [*still_open, *_list_expected_caveats(found)]:
        for surface, text in list_answers(found).items():
            if text and not re.search(caveat, " ".join(text.split())):
                yield f"{surface} lacks the caveat {caveat!r}: {verdict['headline']} {verdict['caveats']}"
    full = {trial["alternative"] for trial in _list_full(found)}
    for name in full:
        if any(re.search(rf"Without .*\b{re.escape(name)}\b", caveat) for caveat in verdict["caveats"]):
            yield f"{name} has a trial of full length: {verdict['caveats']}"
    if len(full) > 1 and "no other alternative has full length," in verdict["headline"]:
        yield f"{full} have full length: {verdict['headline']}"


def _check_turns(found: Surfaces) -> Iterator[str]:
    """No alternative has a second trial before each has its first one."""
    document, verdict = found.drawn.document, found.detail["verdict"]
    if verdict is None or document["sampler"]["kind"] == "grid" or "points" in document:
        return
    counts = Counter(trial["alternative"] for trial in found.detail["trials"] if not trial["is_repeat"])
    untried = [caveat for caveat in verdict["caveats"] if caveat.startswith("Not tried: ")]
    if untried and max(counts.values()) > 1:
        yield f"{untried}, although others had {counts}"


def _list_expected_caveats(found: Surfaces) -> Iterator[str]:
    trials = found.detail["trials"]
    tried = {trial["alternative"] for trial in trials}
    searched = [trial for trial in trials if not trial["is_repeat"]]
    for name in list_alternatives(found.drawn) - tried:
        yield rf"Not tried: .*\b{name}\b"
    full = {trial["alternative"] for trial in _list_full(found)}
    for name in tried - full:
        yield rf"Without a trial of full length: .*\b{re.escape(name)}\b"
    ranked = {trial["alternative"] for trial in trials if _is_rankable(trial)}
    counts = Counter(
        alternative
        for alternative, _ in {
            (trial["alternative"], found.configs[trial["identity"]].configuration_identity)
            for trial in searched
            if trial["curve"] and trial["alternative"] in ranked
        }
    )
    most = max(counts.values(), default=0)
    for name, count in counts.items():
        if 3 * count < most:
            yield rf"fewer configurations than the {most} of others: .*\b{re.escape(name)} \({count}\)"
    repeats = [trial for trial in trials if trial["is_repeat"]]
    seeds = Counter(trial["name"].partition(" seed")[0] for trial in repeats)
    diverged = Counter(trial["name"].partition(" seed")[0] for trial in repeats if trial["has_diverged"])
    for name, count in diverged.items():
        yield rf"{re.escape(name)} \({count} of {seeds[name]} seeds diverged\)"
    if any(_label(trial["state"]) == "open" for trial in trials):
        yield "open: the answer may change"
    for name in _list_unequal_settings(searched, found):
        yield rf"differ in what one or both alternatives have tried at one value only: .*{re.escape(name)}"


def _list_unequal_settings(searched: list[dict[str, Any]], found: Surfaces) -> Iterator[str]:
    """Fields of training and dropout in which the two best differ, and one alternative has one value."""
    verdict = found.detail["verdict"]
    if "compare" in found.drawn.document or not verdict["comparisons"]:
        return
    names = (verdict["winner"], verdict["comparisons"][0]["name"])
    first, second = (next(trial for trial in searched if trial["name"] == name) for name in names)
    if first["alternative"] == second["alternative"]:
        return
    for name in first["fields"].keys() & second["fields"].keys():
        tried = [
            {
                str(trial["fields"].get(name))
                for trial in searched
                if trial["alternative"] == own["alternative"]
            }
            for own in (first, second)
        ]
        is_fixed = any(len(values) == 1 for values in tried)
        differs = first["fields"][name] != second["fields"][name]
        if (name.startswith("training.") or "dropout" in name) and differs and is_fixed:
            yield name


def _check_leaders(found: Surfaces) -> Iterator[str]:
    """A trial that leads at equal tokens before full length leaves no winner."""
    verdict, full = found.detail["verdict"], _list_full(found)
    trained = [trial for trial in full if trial["family"] != "kneser_ney"] or full
    names = {trial["identity"] for trial in full}
    best = found.detail["summary"]["best"]
    own = next((trial["alternative"] for trial in full if best and trial["identity"] == best["identity"]), "")
    is_alone = len({trial["alternative"] for trial in found.detail["trials"] if _is_rankable(trial)}) == 1
    for trial in found.detail["trials"]:
        cut = _label(trial["state"]) == "open" or trial["state"] == "paused"
        if trial["is_repeat"] or not cut or not _is_rankable(trial) or trial["identity"] in names:
            continue
        cost = min(trial["curve"].values())
        at_once = (_find_cost_at(other, trial["tokens"]) for other in trained)
        lowest = min((other for other in at_once if other is not None), default=-math.inf)
        leads = cost < lowest and (is_alone or trial["alternative"] != own)
        if leads and not (verdict and verdict["is_undecided"]):
            yield f"{trial['name']} ({trial['state']}) led with {cost} against {lowest}: {verdict}"


def _find_cost_at(trial: dict[str, Any], tokens: int) -> float | None:
    """The lowest cost up to these tokens, that of a report shortly after them included."""
    curve = {int(at): cost for at, cost in trial["curve"].items()}
    above = min((at for at in curve if at >= tokens), default=max(curve))
    below = max((at for at in curve if at < tokens), default=0)
    stop = above if above - tokens <= 0.25 * (above - below) else below
    return min((cost for at, cost in curve.items() if at <= stop), default=None)


def _check_numbers(found: Surfaces) -> Iterator[str]:
    """The best configuration has one number, with the same digits, in every text."""
    best = found.detail["summary"]["best"]
    verdict = found.detail["verdict"]
    if best is None or verdict is None:
        return
    if verdict["winner"] != best["name"]:
        yield f"study show has {best['name']} as best, the report {verdict['winner']}"
    figure = Objective(found.detail["summary"]["objective"]).format_figure(best["figure"], 3)
    texts = {**list_answers(found), "study list": found.listed}
    if found.tags:
        texts["MLflow's figure"] = found.tags.get("memtune.winner_figure", "")
    for surface, text in texts.items():
        if text and not re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", text.replace(",", "")):
            yield f"{surface} lacks the figure {figure}: {text[:300]}"


def _check_p_values(found: Surfaces) -> Iterator[str]:
    """Each p-value says test, unit, number and correction."""
    for surface, text in list_answers(found).items():
        flat = " ".join(text.split())
        if len(P_VALUE.findall(flat)) != len(WHOLE_P_VALUE.findall(flat)):
            yield f"{surface} has a p-value without its test: {P_VALUE.findall(flat)}"
