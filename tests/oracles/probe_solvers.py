"""Solvers of the probes, made by hand: each answers every asked word from a row's inputs alone.

A solver takes the inputs, the training rows, which only memorisation needs, and the settings. It returns the
answer at each place, or fewer where nothing can be asked.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import add, mul, sub

import numpy as np

from memtune.corpora.grammar.embedded_corpus import next_word_probabilities
from memtune.corpora.grammar.lexicon import OTHER_FORM, PARTNERS
from memtune.corpora.probes.probe_rows import Row

Answers = dict[int, str]


def recall_after_key(inputs: Sequence[str], train: Sequence[Row], settings: Mapping[str, float]) -> Answers:
    """The word that followed the first place of the current one."""
    return {
        place: inputs[inputs.index(word) + 1]
        for place, word in enumerate(inputs)
        if inputs.index(word) + 1 < len(inputs)
    }


def recall_motif(inputs: Sequence[str], train: Sequence[Row], settings: Mapping[str, float]) -> Answers:
    """After a key and the part of its value that is read, the next word of the value at the first place."""
    text, found = " ".join(inputs) + " ", {}
    for place in range(len(inputs)):
        start = max(
            (at for at in range(place + 1) if inputs[at][0] == "k" and is_key_start(inputs, at)), default=0
        )
        read = " ".join(inputs[start : place + 1]) + " "
        before = text.find(read)
        rest = text[before + len(read) :].split()
        if rest:
            found[place] = rest[0]
    return found


def is_key_start(inputs: Sequence[str], place: int) -> bool:
    return place == 0 or inputs[place - 1][0] != "k"


def copy_words(inputs: Sequence[str], train: Sequence[Row], settings: Mapping[str, float]) -> Answers:
    words = [word for word in inputs if word.startswith("w")]
    return dict(zip(range(inputs.index("copy") + 1, len(inputs)), words, strict=True))


def repeat(inputs: Sequence[str], train: Sequence[Row], settings: Mapping[str, float]) -> Answers:
    return dict(enumerate(inputs))


def look_up(inputs: Sequence[str], train: Sequence[Row], settings: Mapping[str, float]) -> Answers:
    learnt = {words[at]: answers[at + 1] for words, answers in train for at in range(0, len(words), 2)}
    return {at + 1: learnt[inputs[at]] for at in range(0, len(inputs), 2)}


def add_up(inputs: Sequence[str], train: Sequence[Row], settings: Mapping[str, float]) -> Answers:
    modulus = {"parity": 2, "z60": 60}[str(settings["probe"])]
    return {at: str(sum(int(word) for word in inputs[: at + 1]) % modulus) for at in range(len(inputs))}


def compute(inputs: Sequence[str], train: Sequence[Row], settings: Mapping[str, float]) -> Answers:
    found, value = {}, 0
    for at in range(0, len(inputs), 2):
        value = {"+": add, "-": sub, "*": mul}[inputs[at]](value, int(inputs[at + 1]))
        found[at + 1] = str(value % 5)
    return found


def multiply_matrices(inputs: Sequence[str], train: Sequence[Row], settings: Mapping[str, float]) -> Answers:
    """Products of permutation matrices: column i has its 1 at the image of i."""
    total, found = np.eye(len(inputs[0]), dtype=int), {}
    for at, word in enumerate(inputs):
        total = (
            np.eye(len(word), dtype=int)[:, [word.index(str(place)) for place in range(len(word))]].T @ total
        )
        found[at] = "".join(str(image) for image in total.argmax(0))
    return found


def close_brackets(inputs: Sequence[str], train: Sequence[Row], settings: Mapping[str, float]) -> Answers:
    """Cancels the innermost pairs until none is left; the last open bracket closes next."""
    found = {}
    for at in range(len(inputs)):
        text, before = " ".join(inputs[: at + 1]) + " ", None
        while text != before:
            before = text
            for kind in ("0", "1"):
                text = text.replace(f"open{kind} close{kind} ", "")
        found[at] = text.split()[-1].replace("open", "close") if text else "none"
    return found


def find_number(inputs: Sequence[str], train: Sequence[Row], settings: Mapping[str, float]) -> Answers:
    """The number of the verbs with which the grammar may go on."""
    verbs = [word for word in next_word_probabilities(inputs) if word in OTHER_FORM]
    (number,) = {"singular" if verb.endswith("s") else "plural" for verb in verbs}
    return {len(inputs) - 1: number}


def close_last(inputs: Sequence[str], train: Sequence[Row], settings: Mapping[str, float]) -> Answers:
    open_brackets: list[str] = []
    for word in inputs:
        if open_brackets and word == open_brackets[-1]:
            open_brackets.pop()
        elif not word.isalpha() and word in PARTNERS:
            open_brackets.append(PARTNERS[word])
    return {len(inputs) - 1: open_brackets[-1]}


def parse_name(inputs: Sequence[str], train: Sequence[Row], settings: Mapping[str, float]) -> Answers:
    (name,) = next_word_probabilities(inputs)
    return {len(inputs) - 1: name}


SOLVERS: dict[str, Callable[[Sequence[str], Sequence[Row], Mapping[str, float]], Answers]] = {
    "mqar": recall_after_key,
    "in_context_recall": recall_after_key,
    "noisy_recall": recall_after_key,
    "fuzzy_recall": recall_motif,
    "selective_copying": copy_words,
    "compression": repeat,
    "memorisation": look_up,
    "induction": recall_after_key,
    "parity": add_up,
    "modular_arithmetic": compute,
    "s3": multiply_matrices,
    "s5": multiply_matrices,
    "a5": multiply_matrices,
    "z60": add_up,
    "dyck": close_brackets,
    "agreement": find_number,
    "brackets": close_last,
    "names": parse_name,
}
