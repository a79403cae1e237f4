"""Rows of probes that ask for a state: sums, products of a group, open brackets, and the embedded grammar.

A state is asked after every word, so that a row holds all shorter ones. The word problems are those of Liu et
al. (2023), "Transformers Learn Shortcuts to Automata", and Merrill, Petty and Sabharwal (2024), "The Illusion
of State in State-Space Models".
"""

from functools import cache
from itertools import accumulate, permutations
from random import Random

from memtune.corpora.grammar.embedded_corpus import draw_sentence, next_word_probabilities
from memtune.corpora.grammar.lexicon import BRACKETS, NAMES, PARTNERS
from memtune.corpora.probes.recall import UNASKED, Row

_NAMES = frozenset(name for lexicon in NAMES.values() for name in lexicon.words)
_CLOSERS = frozenset(PARTNERS[bracket] for bracket in BRACKETS.words)


def draw_sums(random: Random, is_training: bool, *, length: int, modulus: int) -> Row | None:
    """Numbers below the modulus; their sum is asked after each. The modulus 2 is parity, 60 the group Z60."""
    numbers = [random.randrange(modulus) for _ in range(length)]
    return [str(number) for number in numbers], [str(total % modulus) for total in accumulate(numbers)]


def draw_arithmetic(random: Random, is_training: bool, *, length: int, modulus: int) -> Row | None:
    """Numbers with +, - or * between them, computed from the left; the value is asked after each number."""
    inputs, answers, value = [], [], 0
    for place in range(length // 2):
        sign, number = random.choice("+-*") if place else "+", random.randrange(modulus)
        value = {"+": value + number, "-": value - number, "*": value * number}[sign] % modulus
        inputs += [sign, str(number)]
        answers += [UNASKED, str(value)]
    return inputs, answers


def draw_products(
    random: Random, is_training: bool, *, length: int, objects: int, even: int = 0
) -> Row | None:
    """Permutations of objects; their product, each applied after those before it, is asked after each.

    All permutations are the group S; with `even` only the even ones, the group A.
    """
    elements = _list_permutations(objects, bool(even))
    product, inputs, answers = tuple(range(objects)), [], []
    for _ in range(length):
        element = random.choice(elements)
        product = tuple(element[place] for place in product)
        inputs.append(_name_permutation(element))
        answers.append(_name_permutation(product))
    return inputs, answers


def draw_dyck(random: Random, is_training: bool, *, length: int, kinds: int, depth: int) -> Row | None:
    """Brackets of several kinds, at most `depth` open; asked is the one that closes next, or `none`.

    Hewitt et al. (2020), "RNNs can generate bounded hierarchical languages with optimal memory".
    """
    open_kinds: list[int] = []
    inputs, answers = [], []
    for _ in range(length):
        if open_kinds and (len(open_kinds) == depth or random.random() < 0.5):
            inputs.append(f"close{open_kinds.pop()}")
        else:
            open_kinds.append(random.randrange(kinds))
            inputs.append(f"open{open_kinds[-1]}")
        answers.append(f"close{open_kinds[-1]}" if open_kinds else "none")
    return inputs, answers


def draw_agreement(random: Random, is_training: bool) -> Row | None:
    """The words before a verb of the embedded grammar, with nouns of the other number between it and its
    subject; the verb's number is asked.
    """
    sentence = draw_sentence(random)
    verb = sentence.agreement
    if verb is None or not verb.attractors:
        return None
    number = "singular" if len(verb.right) > len(verb.wrong) else "plural"
    return list(sentence.words[: verb.verb]), [UNASKED] * (verb.verb - 1) + [number]


def draw_bracket(random: Random, is_training: bool) -> Row | None:
    """The words of the embedded grammar before a bracket closes; which bracket is asked."""
    words = draw_sentence(random).words
    places = [place for place, word in enumerate(words) if word in _CLOSERS]
    if not places:
        return None
    place = random.choice(places)
    return list(words[:place]), [UNASKED] * (place - 1) + [words[place]]


def draw_name(random: Random, is_training: bool) -> Row | None:
    """The words of the embedded grammar before a name comes again; the name is asked."""
    words = draw_sentence(random).words
    places = [
        place
        for place, word in enumerate(words)
        if word in _NAMES and word in words[:place] and len(next_word_probabilities(words[:place])) == 1
    ]
    if not places:
        return None
    place = random.choice(places)
    return list(words[:place]), [UNASKED] * (place - 1) + [words[place]]


@cache
def _list_permutations(objects: int, even: bool) -> list[tuple[int, ...]]:
    found = list(permutations(range(objects)))
    return [own for own in found if not even or _count_inversions(own) % 2 == 0]


def _count_inversions(element: tuple[int, ...]) -> int:
    return sum(first > second for place, second in enumerate(element) for first in element[:place])


def _name_permutation(element: tuple[int, ...]) -> str:
    return "".join(str(place) for place in element)
