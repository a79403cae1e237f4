"""The rows of probes. Each function draws one: its inputs, and at each input the word that is asked after it.

They raise CorpusError for whole settings from 1 that allow no row.

Some ask for what was read before: recall, copying, compression and memorisation. The six tasks of MAD are
those of Poli et al. (2024), "Mechanistic Design and Scaling of Hybrid Architectures"; MQAR is that of Arora
et al. (2023), "Zoology".

The others ask for a state: sums, products of a group, open brackets, and the embedded grammar. A state is
asked after every word, so that a row holds all shorter ones. The word problems are those of Liu et al.
(2023), "Transformers Learn Shortcuts to Automata", and Merrill, Petty and Sabharwal (2024), "The Illusion of
State in State-Space Models".
"""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate, permutations
from random import Random

from memtune.corpora.grammar.embedded_corpus import draw_sentence, next_word_probabilities
from memtune.corpora.grammar.lexicon import BRACKETS, NAME_WORDS, PARTNERS
from memtune.errors import CorpusError

UNASKED = "_"
BLANK = "."
Row = tuple[list[str], list[str]]
"""Inputs and answers, of one length."""
_CLOSERS = frozenset(PARTNERS[bracket] for bracket in BRACKETS.words)


def _require(setting: str, value: int, minimum: int, why: str) -> None:
    if value < minimum:
        raise CorpusError(
            f"{setting} = {value} is too small, because {why}; set {setting} to {minimum} or more"
        )


def draw_mqar(
    random: Random, is_training: bool, *, length: int, pairs: int, keys: int, values: int
) -> Row | None:
    """Pairs of key and value, then each key again at any place among blanks, where its value is asked."""
    _require("length", length, 3 * pairs, f"pairs = {pairs} take three words each")
    _require("keys", keys, pairs, f"pairs = {pairs} have different keys")
    value_by_key = {f"k{key}": f"v{random.randrange(values)}" for key in random.sample(range(keys), pairs)}
    inputs = [word for pair in value_by_key.items() for word in pair] + [BLANK] * (length - 2 * pairs)
    answers = [UNASKED] * length
    for place, (key, value) in zip(
        random.sample(range(2 * pairs, length), pairs), value_by_key.items(), strict=True
    ):
        inputs[place], answers[place] = key, value
    return inputs, answers


def draw_context_recall(
    random: Random,
    is_training: bool,
    *,
    length: int,
    vocabulary: int,
    noise: float = 0.0,
    noise_words: int = 0,
) -> Row | None:
    """Pairs of key and value; where a key comes again, its value is asked. The last pair is a repetition.

    A share `noise` of the pairs are two of `noise_words` other words, which belong to the vocabulary.
    """
    _require("length", length, 4, "a pair comes twice")
    _require("vocabulary", vocabulary, noise_words + 2, "it has a key, a value and the words of the noise")
    keys, values = _halve(vocabulary - noise_words)
    known: dict[str, str] = {}
    words, asked = [], []
    pairs = length // 2
    first = random.randrange(pairs - 1)  # is a pair, so that the last key has been read
    for pair in range(pairs):
        if pair not in (first, pairs - 1) and random.random() < noise:
            words += [f"n{random.randrange(noise_words)}" for _ in range(2)]
            asked += [False, False]
            continue
        key = random.choice(list(known) if pair == pairs - 1 else keys)
        asked += [False, key in known]
        words += [key, known.setdefault(key, random.choice(values))]
    return _ask_next_words(words, asked, is_training)


def draw_fuzzy_recall(
    random: Random, is_training: bool, *, length: int, vocabulary: int, longest: int
) -> Row | None:
    """As recall, with keys and values of 1 to `longest` different words; keys of a test have `longest`."""
    _require("length", length, 4 * longest - 1, f"a pair of longest = {longest} comes twice")
    _require("vocabulary", vocabulary, 2 * longest + 1, f"keys and values have longest = {longest} words")
    keys, values = _halve(vocabulary - 1)

    def draw_key() -> tuple[str, ...]:
        return tuple(random.sample(keys, random.randint(1, longest) if is_training else longest))

    value_by_key: dict[tuple[str, ...], list[str]] = {}

    def read_pair(key: tuple[str, ...]) -> list[str]:
        return value_by_key.setdefault(key, random.sample(values, random.randint(1, longest)))

    repeated = draw_key()
    room = length + 1 - 2 * (len(repeated) + len(read_pair(repeated)))
    order = [repeated]
    while (key := draw_key()) and (size := len(key) + len(read_pair(key))) <= room:
        order.append(key)
        room -= size
    random.shuffle(order)
    words, asked, seen = ["pad"] * room, [False] * room, set[tuple[str, ...]]()
    for key in [*order, repeated]:
        words += [*key, *value_by_key[key]]
        asked += [False] * len(key) + [key in seen] * len(value_by_key[key])
        seen.add(key)
    return _ask_next_words(words, asked, is_training)


def draw_selective_copying(
    random: Random, is_training: bool, *, length: int, copied: int, vocabulary: int
) -> Row | None:
    """Words scattered among blanks; after the word `copy` they are asked in their order."""
    _require("length", length, 2 * copied + 1, f"copied = {copied} words are read and asked")
    _require("vocabulary", vocabulary, 3, "it has a blank and the word copy")
    words = [f"w{random.randrange(vocabulary - 2)}" for _ in range(copied)]
    inputs = [BLANK] * length
    inputs[length - copied - 1] = "copy"
    for place, word in zip(sorted(random.sample(range(length - copied - 1), copied)), words, strict=True):
        inputs[place] = word
    return inputs, [UNASKED] * (length - copied) + words


def draw_compression(random: Random, is_training: bool, *, length: int, vocabulary: int) -> Row | None:
    """Random words and a last one, which in MAD is asked too; all are asked from the state after the last."""
    _require("length", length, 2, "the last word is not asked")
    _require("vocabulary", vocabulary, 2, "it has the last word")
    words = [f"w{random.randrange(vocabulary - 1)}" for _ in range(length - 1)]
    return [*words, "end"], [*words, UNASKED]


def draw_memorisation(random: Random, is_training: bool, *, length: int, vocabulary: int) -> Row | None:
    """Keys, each before a word at which its value is asked: one map of keys to values for all rows."""
    _require("length", length, 2, "a row has a key and its value")
    _require("vocabulary", vocabulary, 3, "it has a key, a value and the word before a value")
    keys, values = _halve(vocabulary - 1)
    Random(vocabulary).shuffle(values)
    chosen = [random.randrange(len(keys)) for _ in range(length // 2)]
    inputs = [word for key in chosen for word in (keys[key], "value?")]
    return inputs, [word for key in chosen for word in (UNASKED, values[key])]


def draw_induction(random: Random, is_training: bool, *, length: int, vocabulary: int) -> Row | None:
    """Random words and one mark; the last word is the mark again, and what followed the first is asked.

    Olsson et al. (2022), "In-context Learning and Induction Heads", as in Gu and Dao (2023), "Mamba".
    """
    _require("length", length, 3, "the mark comes twice, with a word between")
    _require("vocabulary", vocabulary, 2, "it has the mark")
    inputs = [f"w{random.randrange(vocabulary - 1)}" for _ in range(length - 1)] + ["mark"]
    place = random.randrange(length - 2)
    inputs[place] = "mark"
    return inputs, [UNASKED] * (length - 1) + [inputs[place + 1]]


def _halve(vocabulary: int) -> tuple[list[str], list[str]]:
    """Keys and values: half of the words each, and one more value of an odd number."""
    keys = vocabulary // 2
    return [f"k{word}" for word in range(keys)], [f"v{word}" for word in range(vocabulary - keys)]


def _ask_next_words(words: Sequence[str], asked: Sequence[bool], is_training: bool) -> Row:
    """A row that asks for the next word: everywhere in training, as MAD does, else where it is determined."""
    answers = [
        word if is_training or is_asked else UNASKED
        for word, is_asked in zip(words[1:], asked[1:], strict=True)
    ]
    return list(words[:-1]), answers


def draw_sums(random: Random, is_training: bool, *, length: int, modulus: int) -> Row | None:
    """Numbers below the modulus; their sum is asked after each. The modulus 2 is parity, 60 the group Z60."""
    numbers = [random.randrange(modulus) for _ in range(length)]
    return [str(number) for number in numbers], [str(total % modulus) for total in accumulate(numbers)]


def draw_arithmetic(random: Random, is_training: bool, *, length: int, modulus: int) -> Row | None:
    """Numbers with +, - or * between them, computed from the left; the value is asked after each number."""
    _require("length", length, 2, "a row has a sign and a number")
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
    return _ask_at([place for place, word in enumerate(words) if word in _CLOSERS], words, random)


def draw_name(random: Random, is_training: bool) -> Row | None:
    """The words of the embedded grammar before a name comes again; the name is asked."""
    words = draw_sentence(random).words
    places = [
        place
        for place, word in enumerate(words)
        if word in NAME_WORDS and word in words[:place] and len(next_word_probabilities(words[:place])) == 1
    ]
    return _ask_at(places, words, random)


def _ask_at(places: Sequence[int], words: Sequence[str], random: Random) -> Row | None:
    """The words before one of the places; the word at it is asked. None without a place."""
    if not places:
        return None
    place = random.choice(places)
    return list(words[:place]), [UNASKED] * (place - 1) + [words[place]]


@cache
def _list_permutations(objects: int, even: bool) -> list[tuple[int, ...]]:
    found = []
    for own in permutations(range(objects)):
        inversions = sum(first > second for place, second in enumerate(own) for first in own[:place])
        if not even or inversions % 2 == 0:
            found.append(own)
    return found


def _name_permutation(element: tuple[int, ...]) -> str:
    return "".join(str(place) for place in element)
