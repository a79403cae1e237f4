"""The words of the embedded corpus, their categories and their probabilities.

Every word belongs to exactly one lexicon, so a word determines its category. Nouns have four categories. A
verb's lemma determines the category of its subject and, if it is transitive, of its object. Within a lexicon
the word of rank r (from 0) has the weight 1 / (r + zipf_offset), which is Zipf's law for an offset of 1. The
weights use only exactly rounded sums and quotients, so the probabilities are the same on every machine.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import fsum

CATEGORIES = ("people", "animals", "machines", "plants")
NUMBERS = ("singular", "plural")


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Words of one kind in descending order of frequency, with their probabilities."""

    words: tuple[str, ...]
    zipf_offset: float = 1.0

    @classmethod
    def from_text(cls, words: str, zipf_offset: float = 1.0) -> "Lexicon":
        """A lexicon of words separated by whitespace."""
        return cls(tuple(words.split()), zipf_offset)

    @cached_property
    def probabilities(self) -> tuple[float, ...]:
        """Probability of each word."""
        weights = [1.0 / (rank + self.zipf_offset) for rank in range(len(self.words))]
        total = fsum(weights)
        return tuple(weight / total for weight in weights)

    @cached_property
    def cumulative(self) -> tuple[float, ...]:
        """Cumulative probability up to and including each word; the last one is exactly 1."""
        return (*accumulate(self.probabilities[:-1]), 1.0)


def _inflect(lemmas: str, inflected_number: str, zipf_offset: float) -> dict[str, Lexicon]:
    """Both forms of the lemmas by number; the form of `inflected_number` adds an "s"."""
    plain = tuple(lemmas.split())
    inflected = tuple(f"{lemma}s" for lemma in plain)
    other = "plural" if inflected_number == "singular" else "singular"
    return {inflected_number: Lexicon(inflected, zipf_offset), other: Lexicon(plain, zipf_offset)}


_NOUN_LEMMAS = {
    "people": (
        "teacher doctor farmer student neighbor painter soldier lawyer singer king writer sailor baker "
        "queen actor dancer priest poet banker pilot hunter prince tailor merchant"
    ),
    "animals": (
        "dog cat bird cow bear rabbit lion goat duck tiger snake monkey elephant spider frog owl donkey "
        "eagle turtle camel whale panther lizard otter"
    ),
    "machines": (
        "car truck engine tractor robot boat computer motor pump wagon clock bicycle plane furnace drill "
        "printer rocket generator helicopter elevator turbine scooter submarine excavator"
    ),
    "plants": (
        "tree flower rose weed oak vine herb bean shrub hedge mushroom lemon pine tulip willow olive fern "
        "melon maple nettle cedar clover orchid thistle"
    ),
}
_TRANSITIVE_LEMMAS = {
    ("people", "people"): "visit invite admire trust",
    ("people", "animals"): "feed train adopt groom",
    ("people", "machines"): "repair drive operate rent",
    ("people", "plants"): "gather water collect trim",
    ("animals", "people"): "follow obey guard lick",
    ("animals", "animals"): "hunt bite defend stalk",
    ("animals", "machines"): "avoid inspect ignore sniff",
    ("animals", "plants"): "eat chew nibble devour",
    ("machines", "people"): "annoy serve transport deafen",
    ("machines", "animals"): "scare disturb overtake startle",
    ("machines", "machines"): "pull replace power tow",
    ("machines", "plants"): "cut spray flatten uproot",
    ("plants", "people"): "delight heal inspire shelter",
    ("plants", "animals"): "attract conceal poison sustain",
    ("plants", "machines"): "cover block surround outlast",
    ("plants", "plants"): "shade outgrow strangle resemble",
}
_INTRANSITIVE_LEMMAS = {
    "people": "sing wait laugh argue dream smile whisper travel",
    "animals": "sleep wander hide howl swim growl yawn roam",
    "machines": "stop hum rattle stall rust vibrate overheat spin",
    "plants": "grow bloom sway wither ripen decay sprout fade",
}
_SEPARABLE_LEMMAS = {
    "people": "pick:up take:apart throw:away bring:back set:aside lock:out",
    "animals": "dig:up tear:apart chase:away drag:along knock:down nudge:aside",
    "machines": "lift:up slow:down haul:away send:back shut:out bind:together",
    "plants": "hold:together weigh:down keep:away tangle:up lure:along crowd:out",
}
_REPORTING_LEMMAS = "think claim know insist believe admit suspect doubt"

_WOMEN = (
    "Anna Maria Ruth Clara Emma Alice Helen Laura Nina Sara Julia Grace Irene Lucy Edith Flora Hanna "
    "Ida Jane Kate Lena Mona Nora Olga Paula Rita Sofia Tina Ursula Vera Ada Agnes Alma Amelia Astrid "
    "Beatrice Bella Bertha Bianca Bridget Camilla Carmen Cecilia Celia Charlotte Chloe Cora Daphne "
    "Delia Diana Doris Dorothy Edna Eleanor Elisa Elsa Erika Esther Eva Fanny Felicia Freya Frida "
    "Gemma Gerda Gloria Greta Gudrun Hazel Heidi Hilda Holly Ilse Inge Ingrid Isabel Jasmin Johanna "
    "Judith Karin"
)
_MEN = (
    "Peter Paul David Martin Simon Thomas Adam Bruno Carl Daniel Erik Felix Georg Hugo Ivan Jacob "
    "Klaus Leo Max Noah Oscar Philip Quentin Robert Samuel Theo Ulrich Victor Walter Xaver Aaron "
    "Albert Alfred Anton Arnold Arthur Axel Benno Boris Caspar Cyril Dennis Dieter Dirk Edgar Edwin "
    "Emil Ernst Eugene Ferdinand Florian Francis Frank Fred Gerald Gilbert Gregor Gustav Hans Harald "
    "Harold Heinrich Henry Herbert Hermann Horst Igor Isaac Jasper Jerome Joachim Johann Jonas Joseph "
    "Julian Jurgen Karl Kaspar Kilian Konrad"
)
_ADJECTIVES = (
    "old small young big new quiet white strong little black strange heavy green narrow tall brown "
    "gentle famous clever loud tiny red lonely proud grey rare sturdy modern yellow dusty elegant noisy "
    "clumsy ancient curious fragile shiny humble splendid peculiar"
)
_ADVERBS = (
    "often always quickly never slowly again quietly today rarely suddenly gladly daily alone soundly "
    "outside patiently loudly everywhere secretly calmly"
)

NOUNS = {category: _inflect(lemmas, "plural", 1.5) for category, lemmas in _NOUN_LEMMAS.items()}
TRANSITIVE = {roles: _inflect(lemmas, "singular", 1.5) for roles, lemmas in _TRANSITIVE_LEMMAS.items()}
INTRANSITIVE = {who: _inflect(lemmas, "singular", 1.5) for who, lemmas in _INTRANSITIVE_LEMMAS.items()}
REPORTING = _inflect(_REPORTING_LEMMAS, "singular", 1.5)
_PARTICLES = {
    who: dict(pair.split(":") for pair in pairs.split()) for who, pairs in _SEPARABLE_LEMMAS.items()
}
SEPARABLE = {who: _inflect(" ".join(pairs), "singular", 2.0) for who, pairs in _PARTICLES.items()}

NAMES = {"woman": Lexicon.from_text(_WOMEN, 40.0), "man": Lexicon.from_text(_MEN, 40.0)}
DETERMINERS = {
    "": Lexicon(("the",)),
    "singular": Lexicon(("this", "every", "one", "each")),
    "plural": Lexicon(("some", "these", "many", "several")),
}
ADJECTIVES = Lexicon.from_text(_ADJECTIVES)
ADVERBS = Lexicon.from_text(_ADVERBS)
PREPOSITIONS = Lexicon.from_text("of near with behind beside under from above against beyond around below")
COORDINATORS = Lexicon(("and", "but", "so", "yet"))
SUBORDINATORS = Lexicon(("because", "while", "although", "until", "unless"))
OPENERS = Lexicon(("when", "if", "after", "before"))
MEETING = Lexicon.from_text("meets calls greets thanks warns remembers forgives praises", 2.0)
BRACKETS = Lexicon(("(", "[", "{", "«"))
THAT = Lexicon(("that",))
COMMA = Lexicon((",",))

NAME_WORDS = frozenset(name for lexicon in NAMES.values() for name in lexicon.words)
NUMBER_BY_NOUN = {
    noun: number for forms in NOUNS.values() for number in NUMBERS for noun in forms[number].words
}


def _collect_verb_forms() -> dict[str, str]:
    forms: dict[str, str] = {}
    for group in (*TRANSITIVE.values(), *INTRANSITIVE.values(), *SEPARABLE.values(), REPORTING):
        singular, plural = group["singular"].words, group["plural"].words
        forms |= zip(singular + plural, plural + singular, strict=True)
    return forms


def _collect_partners() -> dict[str, str]:
    names = {name: name for lexicon in NAMES.values() for name in lexicon.words}
    closers = dict(zip(BRACKETS.words, (")", "]", "}", "»"), strict=True))
    particles = {
        f"{lemma}{ending}": particle
        for pairs in _PARTICLES.values()
        for lemma, particle in pairs.items()
        for ending in ("", "s")
    }
    return names | closers | particles


OTHER_FORM = _collect_verb_forms()
"""Maps each verb form that agrees with a noun to the form of the other number."""

PARTNERS = _collect_partners()
"""Maps each word that requires a later partner to it: a name to itself, a bracket to the closing bracket, a
separable verb to its particle."""

_PARTICLE_WORDS = dict.fromkeys(particle for pairs in _PARTICLES.values() for particle in pairs.values())
_LEXICONS = [
    *(lexicon for group in (*NOUNS.values(), *TRANSITIVE.values()) for lexicon in group.values()),
    *(lexicon for group in (*INTRANSITIVE.values(), *SEPARABLE.values()) for lexicon in group.values()),
    *(*REPORTING.values(), *NAMES.values(), *DETERMINERS.values()),
    *(MEETING, ADJECTIVES, ADVERBS, PREPOSITIONS, COORDINATORS),
    *(SUBORDINATORS, OPENERS, BRACKETS, THAT, COMMA),
    Lexicon((*_PARTICLE_WORDS, *(PARTNERS[bracket] for bracket in BRACKETS.words))),
]
WORDS = tuple(word for lexicon in _LEXICONS for word in lexicon.words)
"""Every word of the grammar, without duplicates."""
