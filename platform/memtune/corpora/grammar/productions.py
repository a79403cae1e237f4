"""The productions of the embedded grammar, their weights, and the dependencies of their words.

A derivation rewrites the leftmost symbol. Each production of a symbol starts with a word and leaves symbols
to rewrite (`then`). An optional symbol also has a production without a word. The first words of a symbol's
productions are all different, and differ from every word that may follow an optional symbol. The grammar is
therefore LL(1): the next word determines the production, and a sentence has one derivation.

Symbols carry the features that distant words must agree with: number and category of the subject, and the
category of the noun that an object relative leaves a gap for. They also carry limits: the number of nouns
(`links`) and relative clauses (`relatives`) inside a noun phrase, and of clauses inside a clause (`depth`). A
word that requires a later partner (a name, a bracket, a separable verb) leaves a symbol with the partner in
its `word`.

Dependencies: every symbol is rewritten in a frame, which is the phrase it belongs to. A production may enter
new frames below it. Its word is the head of the innermost frame or depends on that head. Labels are those of
Universal Dependencies.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from memtune.corpora.grammar import lexicon

PARTNER = "<partner>"
"""Placeholder for `word` of a symbol in `then`: the derivation replaces it by the partner of the production's
word."""

SUBJECT_LINKS, OBJECT_LINKS, RELATIVES, CLAUSE_DEPTH = 5, 2, 3, 2


class Symbol(NamedTuple):
    """A nonterminal with its features; "" and 0 mean that a feature is unconstrained or unused.

    verb: kind of the verb symbol that follows a subject. role: relation of a phrase that opens its own frame.
    """

    kind: str
    number: str = ""
    category: str = ""
    gap: str = ""
    verb: str = ""
    role: str = ""
    links: int = 0
    relatives: int = 0
    depth: int = 0
    word: str = ""


class Production(NamedTuple):
    """One expansion of a symbol.

    weight: relative to the other productions of the symbol. words: lexicon of the first word, None for no
    word. then: symbols after the word, each with the number of frames it is above the word's frame. enter:
    relations of the nested frames that the production opens. relation: relation of the word to the head of
    the innermost frame, "" if the word is the head.
    """

    weight: float
    words: lexicon.Lexicon | None
    then: tuple[tuple[Symbol, int], ...] = ()
    relation: str = ""
    enter: tuple[str, ...] = ()


SENTENCE = Symbol("sentence", depth=CLAUSE_DEPTH)

_SUBJECT_CATEGORY_PROBABILITIES = dict(zip(lexicon.CATEGORIES, (0.40, 0.30, 0.18, 0.12), strict=True))
_OBJECT_CATEGORY_PROBABILITIES = {
    "people": dict(zip(lexicon.CATEGORIES, (0.25, 0.25, 0.30, 0.20), strict=True)),
    "animals": dict(zip(lexicon.CATEGORIES, (0.20, 0.40, 0.10, 0.30), strict=True)),
    "machines": dict(zip(lexicon.CATEGORIES, (0.30, 0.20, 0.30, 0.20), strict=True)),
    "plants": dict(zip(lexicon.CATEGORIES, (0.20, 0.30, 0.15, 0.35), strict=True)),
}
_SEPARABLE_OBJECT = {"people": "machines", "animals": "plants", "machines": "animals", "plants": "people"}
_NUMBER_PROBABILITIES = {"singular": 0.55, "plural": 0.45}
_DETERMINER_PROBABILITIES = {"": 0.76, "singular": 0.13, "plural": 0.11}
_MODIFIER_PROBABILITIES = (0.0, 0.4, 0.45, 0.7, 0.75, 0.65)
"""Probability of a modifier by the number of nouns it may contain."""


def list_productions(symbol: Symbol) -> tuple[Production, ...]:
    """All productions of the symbol; their weights need not sum to one."""
    return tuple(_RULES[symbol.kind](symbol))


def _expand_sentence(symbol: Symbol) -> Iterator[Production]:
    """A clause, a report with a conjunct about its reporter, a call and its reply, a place and a clause."""
    clause = Symbol("clause", links=SUBJECT_LINKS, depth=symbol.depth)
    yield from _start_with_determiner(0.22, _make_subject(clause), ("nsubj",))
    report = Symbol("reporting", "singular", depth=symbol.depth - 1)
    conjunct = (Symbol("comma"), Symbol("coordinator"), Symbol("reporter", word=PARTNER))
    yield from _start_with_name(0.34, ("nsubj",), tuple((each, 1) for each in (report, *conjunct)))
    yield Production(0.38, lexicon.OPENERS, ((Symbol("caller"), 0),), "mark", ("advcl",))
    place = Symbol("phrase", links=1, relatives=1)
    opening = ((place, 0), (Symbol("comma"), 1), (clause, 1))
    yield Production(0.06, lexicon.PREPOSITIONS, opening, "case", ("obl",))


def _expand_clause(symbol: Symbol) -> Iterator[Production]:
    yield from _start_with_determiner(0.9, _make_subject(symbol), ("nsubj",))
    yield from _start_with_name(
        0.1, ("nsubj",), ((Symbol("verb", "singular", "people", depth=symbol.depth), 1),)
    )


def _make_subject(clause: Symbol) -> Symbol:
    return Symbol("nominal", verb="verb", links=clause.links, relatives=RELATIVES, depth=clause.depth)


def _start_with_determiner(weight: float, nominal: Symbol, enter: tuple[str, ...]) -> Iterator[Production]:
    for number, words in lexicon.DETERMINERS.items():
        then = ((nominal._replace(number=number), 0),)
        yield Production(weight * _DETERMINER_PROBABILITIES[number], words, then, "det", enter)


def _start_with_name(
    weight: float, enter: tuple[str, ...], then: tuple[tuple[Symbol, int], ...] = ()
) -> Iterator[Production]:
    for names in lexicon.NAMES.values():
        yield Production(weight / 2, names, then, enter=enter)


def _expand_phrase(symbol: Symbol) -> Iterator[Production]:
    """A noun phrase other than a subject."""
    enter = (symbol.role,) if symbol.role else ()
    yield from _start_with_determiner(0.94, symbol._replace(kind="nominal", role=""), enter)
    if symbol.category in ("", "people"):
        yield from _start_with_name(0.06, enter)


def _expand_separated(symbol: Symbol) -> Iterator[Production]:
    """The object between a separable verb and its particle: at least a determiner and a noun."""
    yield from _start_with_determiner(1.0, symbol._replace(kind="nominal", role=""), (symbol.role,))


def _expand_nominal(symbol: Symbol) -> Iterator[Production]:
    yield Production(0.25, lexicon.ADJECTIVES, ((symbol._replace(kind="noun"), 0),), "amod")
    for production in _expand_noun(symbol):
        yield production._replace(weight=0.75 * production.weight)


def _expand_noun(symbol: Symbol) -> Iterator[Production]:
    numbers = {symbol.number: 1.0} if symbol.number else _NUMBER_PROBABILITIES
    categories = {symbol.category: 1.0} if symbol.category else _SUBJECT_CATEGORY_PROBABILITIES
    for number, number_share in numbers.items():
        for category, category_share in categories.items():
            chosen = symbol._replace(number=number, category=category)
            yield Production(
                number_share * category_share, lexicon.NOUNS[category][number], _list_symbols_after(chosen)
            )


def _list_symbols_after(noun: Symbol) -> tuple[tuple[Symbol, int], ...]:
    """A modifier while more nouns are allowed, then the verb if the noun is a subject."""
    modifier = Symbol("modifier", noun.number, noun.category, links=noun.links, relatives=noun.relatives)
    then: tuple[tuple[Symbol, int], ...] = ((modifier, 0),) if noun.links else ()
    if noun.verb:
        then += ((Symbol(noun.verb, noun.number, noun.category, noun.gap, depth=noun.depth), 1),)
    return then


def _expand_modifier(symbol: Symbol) -> Iterator[Production]:
    """Nothing, a prepositional phrase or a relative clause that modifies the noun before it."""
    modified, inner = _MODIFIER_PROBABILITIES[symbol.links], symbol.links - 1
    yield Production(1.0 - modified, None)
    phrase = Symbol("phrase", links=inner, relatives=symbol.relatives)
    yield Production(0.55 * modified, lexicon.PREPOSITIONS, ((phrase, 0),), "case", ("nmod",))
    if symbol.relatives:
        relative = symbol._replace(kind="relative", links=inner, relatives=symbol.relatives - 1)
        yield Production(0.45 * modified, lexicon.THAT, ((relative, 0),), "mark", ("acl:relcl",))


def _expand_circumstance(symbol: Symbol) -> Iterator[Production]:
    """A mandatory modifier."""
    return (production for production in _expand_modifier(symbol) if production.words)


def _expand_relative(symbol: Symbol) -> Iterator[Production]:
    """A relative clause; the noun before it is its subject or, if the clause has a subject, its object."""
    phrase = Symbol("phrase", role="obj", links=symbol.links, relatives=symbol.relatives)
    yield from _expand_transitive(0.35, symbol, phrase)
    yield Production(0.15, lexicon.INTRANSITIVE[symbol.category][symbol.number], ((Symbol("adverb"), 0),))
    subject = phrase._replace(kind="nominal", role="", verb="gapped", gap=symbol.category)
    yield from _start_with_determiner(0.44, subject, ("nsubj",))
    yield from _start_with_name(
        0.06, ("nsubj",), ((Symbol("gapped", "singular", "people", symbol.category), 1),)
    )


def _expand_gapped(symbol: Symbol) -> Iterator[Production]:
    yield Production(1.0, lexicon.TRANSITIVE[symbol.category, symbol.gap][symbol.number])


def _expand_transitive(
    weight: float, subject: Symbol, phrase: Symbol, *after: tuple[Symbol, int]
) -> Iterator[Production]:
    for category, share in _OBJECT_CATEGORY_PROBABILITIES[subject.category].items():
        words = lexicon.TRANSITIVE[subject.category, category][subject.number]
        yield Production(weight * share, words, ((phrase._replace(category=category), 0), *after))


def _expand_verb(symbol: Symbol) -> Iterator[Production]:
    """The verb of a clause and its complements."""
    phrase = Symbol("phrase", role="obj", links=OBJECT_LINKS, relatives=1)
    close = (Symbol("close", depth=symbol.depth), 0)
    yield from _expand_transitive(0.5, symbol, phrase, close)
    separated = phrase._replace(kind="separated", category=_SEPARABLE_OBJECT[symbol.category])
    then = ((separated, 0), (Symbol("particle", word=PARTNER), 0), close)
    yield Production(0.22, lexicon.SEPARABLE[symbol.category][symbol.number], then)
    alone = ((Symbol("adverb"), 0), close)
    yield Production(0.2, lexicon.INTRANSITIVE[symbol.category][symbol.number], alone)
    if symbol.category == "people" and symbol.depth:
        that_clause = ((Symbol("that", depth=symbol.depth - 1), 0),)
        yield Production(0.15, lexicon.REPORTING[symbol.number], that_clause)


def _expand_reporting(symbol: Symbol) -> Iterator[Production]:
    yield Production(1.0, lexicon.REPORTING[symbol.number], ((Symbol("that", depth=symbol.depth), 0),))


def _expand_that(symbol: Symbol) -> Iterator[Production]:
    clause = Symbol("clause", links=SUBJECT_LINKS - 1, depth=symbol.depth)
    yield Production(1.0, lexicon.THAT, ((clause, 0),), "mark", ("ccomp",))


def _expand_close(symbol: Symbol) -> Iterator[Production]:
    """The end of a clause: nothing, an adverb, a clause in brackets or a subordinate clause."""
    yield Production(0.62, None)
    yield Production(0.16, lexicon.ADVERBS, relation="advmod")
    if symbol.depth:
        clause = Symbol("clause", links=OBJECT_LINKS, depth=symbol.depth - 1)
        bracketed = ((clause, 0), (Symbol("closer", word=PARTNER), 0))
        yield Production(0.13, lexicon.BRACKETS, bracketed, "punct", ("parataxis",))
        yield Production(0.09, lexicon.SUBORDINATORS, ((clause, 0),), "mark", ("advcl",))


def _expand_caller(symbol: Symbol) -> Iterator[Production]:
    """A woman calls a man or a man a woman; in the main clause the called one answers the caller."""
    for caller, called in (("woman", "man"), ("man", "woman")):
        then = (
            (Symbol("meeting"), 1),
            (Symbol("called", category=called), 1),
            (Symbol("answered", word=PARTNER), 2),
        )
        yield Production(0.5, lexicon.NAMES[caller], then, enter=("nsubj",))


def _expand_called(symbol: Symbol) -> Iterator[Production]:
    circumstance = Symbol("circumstance", "singular", "people", links=OBJECT_LINKS, relatives=1)
    then = ((circumstance, 0), (Symbol("comma"), 2), (Symbol("answering", word=PARTNER), 2))
    yield Production(1.0, lexicon.NAMES[symbol.category], then, enter=("obj",))


def _make_word_rule(words: lexicon.Lexicon, relation: str) -> Callable[[Symbol], Iterator[Production]]:
    return lambda symbol: iter((Production(1.0, words, relation=relation),))


def _make_partner_rule(
    relation: str = "", enter: tuple[str, ...] = (), then: Symbol | None = None
) -> Callable[[Symbol], Iterator[Production]]:
    """The partner alone, or as the head of new frames, before a symbol of the frame above it."""
    after = ((then, 1),) if then else ()
    return lambda symbol: iter((Production(1.0, lexicon.Lexicon((symbol.word,)), after, relation, enter),))


_RULES: dict[str, Callable[[Symbol], Iterator[Production]]] = {
    "sentence": _expand_sentence,
    "clause": _expand_clause,
    "phrase": _expand_phrase,
    "separated": _expand_separated,
    "nominal": _expand_nominal,
    "noun": _expand_noun,
    "modifier": _expand_modifier,
    "circumstance": _expand_circumstance,
    "relative": _expand_relative,
    "gapped": _expand_gapped,
    "verb": _expand_verb,
    "reporting": _expand_reporting,
    "that": _expand_that,
    "close": _expand_close,
    # The name of the reporter again, as the subject of another verb.
    "reporter": _make_partner_rule(
        enter=("conj", "nsubj"), then=Symbol("verb", "singular", "people", depth=1)
    ),
    "caller": _expand_caller,
    "called": _expand_called,
    "answering": _make_partner_rule(enter=("nsubj",), then=Symbol("meeting")),
    "answered": _make_partner_rule(enter=("obj",), then=Symbol("close", depth=1)),
    "meeting": _make_word_rule(lexicon.MEETING, ""),
    "adverb": _make_word_rule(lexicon.ADVERBS, "advmod"),
    "comma": _make_word_rule(lexicon.COMMA, "punct"),
    "coordinator": _make_word_rule(lexicon.COORDINATORS, "cc"),
    "particle": _make_partner_rule("compound:prt"),
    "closer": _make_partner_rule("punct"),
}
