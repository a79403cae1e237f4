"""The contract over one family or mixer: its examples, its oracle, and its speed, one verdict per line.

A training step is compared with that of an LSTM with as many parameters: time and memory. Before a study or a
trial starts, `check_new_families` asks of what is not built in only that a model builds, does not see later
words, and carries all that it needs in its state, which takes less than a second.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from statistics import median
from typing import Any

import torch
from torch import Tensor

from memtune.errors import ConfigurationError, MemtuneError, PluginError, SpaceError
from memtune.model_checks.family_contract import CHECKS
from memtune.model_checks.oracles import EXAMPLE_SIZE, OracleFile, assert_agreement
from memtune.models import (
    MODELS,
    LanguageModelConfig,
    LSTMConfig,
    NeuralLanguageModel,
    NeuralLanguageModelConfig,
    build_model,
    find_model,
    logits,
    negative_log_likelihood,
)
from memtune.models.mixers.mixer_registry import MIXERS
from memtune.number_format import format_count
from memtune.plugins import list_sources, load_plugin_file
from memtune.plugins.source_modules import describe_error
from memtune.spaces import FittedSize
from memtune.training import TrialConfig
from memtune.values import parse

FLOAT64_TOLERANCE = 1e-9
"""The order of sums changes results by 1e-12 in long texts; an error in an equation by more than 1e-4."""
FLOAT32_TOLERANCE = 1e-5
"""A hundred times the rounding error of float32, because rounding errors accumulate along a text."""
LENGTHS = (1, 2, 15, 16, 63)
"""Predicted words of texts, around the powers of 2 at which implementations cut texts into blocks."""
CUTS, CUT_LENGTH = (1, 7, 15), 16
"""The words after which the state is carried over, in a text of this length."""
WORDS = 23
"""Size of the vocabulary of the compared texts."""
COMPARED_WIDTH, COMPARED_WORDS = 128, 10_000
ROWS, STEPS, REPEATS = 20, 35, 5
"""Of the compared steps."""
READ_SHAPE, READ_CUT = (2, 5, 23), 3
"""Rows, words and vocabulary of the text of `check_new_families`, and the words before its second piece."""
READ_TOLERANCE = 1e-4
"""Of float32, as a share of the largest logit: those of a new model are small."""
MAX_MESSAGE_CHARACTERS = 300


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    topic: str
    sentence: str
    problem: str | None = None
    """Why it does not hold, with the configuration; None where it holds."""

    def __str__(self) -> str:
        """The topic, for the names of tests."""
        return self.topic


def find_family(name: str) -> dict[str, Any]:
    """The table [model] of a family or a mixer: of a Python file, after loading it, or of its name.

    A file with several families gives the first; the others are checked by name in the same process. Raises
    PluginError for a file without a family and a mixer, and ConfigurationError for an unknown name.
    """
    if not (name.endswith(".py") or "/" in name):
        return find_model(name, ".py")
    source = load_plugin_file(name)
    for family in MODELS:
        if MODELS.get_source(family) == source:
            return {"family": family}
    for kind in MIXERS:
        if MIXERS.get_source(kind) == source:
            return {"family": "mixer_blocks", "mixer": {"kind": kind}}
    raise PluginError(f"{name} defines no model family and no mixer")


def check_family(table: Mapping[str, Any], oracle: OracleFile | None = None) -> Iterator[CheckResult]:
    """Run the contract over the family of a table [model]; each verdict comes when it is known.

    Raises ConfigurationError for an example that is not valid, for a family that learns by counting, and
    where Python leaves assertions out.
    """
    if not __debug__:
        raise ConfigurationError(
            "the checks of a family are assertions, which Python leaves out with -O and PYTHONOPTIMIZE; run "
            "memtune model check without them"
        )
    config = MODELS[table["family"]]
    small = {name: value for name, value in EXAMPLE_SIZE.items() if name in config.model_fields}
    given = (oracle.examples if oracle else ()) or [{}]  # without examples one small model
    made = [
        parse(config, {**table, **small, **fields}, f"example {number}")
        for number, fields in enumerate(given, 1)
    ]
    examples = [example.require_network("memtune model check") for example in made]
    (topic, check), *others = CHECKS.items()
    yield (reading := _judge(topic, check.__doc__ or "", check, examples))
    if reading.problem:  # which all other checks would repeat
        return
    if oracle is not None:
        yield from _check_oracle(examples, oracle)
    for topic, check in others:
        yield _judge(topic, check.__doc__ or "", check, examples)
    yield _compare_speed(config, table)


def _check_oracle(examples: Sequence[NeuralLanguageModelConfig], oracle: OracleFile) -> Iterator[CheckResult]:
    texts = [(length, 0) for length in LENGTHS]
    cut_texts = [(CUT_LENGTH, cut) for cut in CUTS]
    comparisons = {
        "Logits, loss and every gradient are those of the equations.": (torch.float64, texts),
        "The state carried over a cut is that of the equations over the whole text.": (
            torch.float64,
            cut_texts,
        ),
        "float32 gives the results of the equations up to rounding.": (torch.float32, [(CUT_LENGTH, 0)]),
    }
    for sentence, comparison in comparisons.items():
        yield _judge("oracle", sentence, partial(_compare_texts, oracle, *comparison), examples)


def _compare_texts(
    oracle: OracleFile,
    dtype: torch.dtype,
    texts: Sequence[tuple[int, int]],
    config: NeuralLanguageModelConfig,
) -> None:
    """Compare over texts, each given by its length and by the words after which the state is carried over."""
    # In evaluation: an oracle without the model's code does not know the masks of dropout.
    tolerance = FLOAT32_TOLERANCE if dtype == torch.float32 else FLOAT64_TOLERANCE
    for length, carried_from in texts:
        model = build_model(config, WORDS, seed=1).to(dtype).eval()
        generator = torch.Generator().manual_seed(length)
        words_BT = torch.randint(WORDS, (2, length + 1), generator=generator)
        assert_agreement(model, oracle.compute_logits, words_BT, tolerance, carried_from)


def _judge(
    topic: str,
    sentence: str,
    run: Callable[[NeuralLanguageModelConfig], None],
    examples: Sequence[NeuralLanguageModelConfig],
) -> CheckResult:
    for example in examples:
        try:
            run(example)
        except (Exception, SystemExit) as error:
            return CheckResult(topic, sentence, f"{example.describe()}: {_explain(error)}")
    return CheckResult(topic, sentence)


def _explain(error: BaseException) -> str:
    """An error on one line; one that memtune raises on purpose as it is."""
    if isinstance(error, MemtuneError):
        return str(error)
    text = str(error) if isinstance(error, AssertionError) else describe_error(error)
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE_CHARACTERS else f"{line[:MAX_MESSAGE_CHARACTERS]}..."


def _compare_speed(config: type[LanguageModelConfig], table: Mapping[str, Any]) -> CheckResult:
    """The speed and the memory; a figure, which no limit judges."""
    try:
        size = {"width": COMPARED_WIDTH} if "width" in config.model_fields else {}
        wide = config.model_validate({**table, **size})
        figures = _compare_with_lstm(wide.require_network("the comparison"), COMPARED_WORDS)
    except (Exception, SystemExit) as error:
        return CheckResult("speed and memory", "A training step can be measured.", _explain(error))
    return CheckResult("speed and memory", figures)


def _compare_with_lstm(config: NeuralLanguageModelConfig, words: int) -> str:
    """Medians of alternating steps over one batch, and the bytes that they keep for the backward pass."""
    fitted = FittedSize("parameters", config.parameter_count(words))
    try:
        width = fitted.solve(lambda width: LSTMConfig(width=width).parameter_count(words))
    except SpaceError:  # fewer parameters than an LSTM of width 1 has
        width = 1
    ours, theirs = _Step(config, words), _Step(LSTMConfig(width=width), words)
    saved, lstm_saved = ours.measure_saved_bytes(), theirs.measure_saved_bytes()
    times = [(ours.time(), theirs.time()) for _ in range(REPEATS)]
    seconds, lstm_seconds = (median(each) for each in zip(*times, strict=True))
    return (
        f"A training step takes {1000 * seconds:.1f} ms, {seconds / lstm_seconds:.2f} times that of an LSTM "
        f"of width {width}; it keeps {saved / 2**20:.1f} MiB, {saved / lstm_saved:.2f} times as much."
    )


class _Step:
    def __init__(self, config: NeuralLanguageModelConfig, words: int) -> None:
        self._model: NeuralLanguageModel = build_model(config, words, seed=0).train()
        generator = torch.Generator().manual_seed(0)
        self._words_BT = torch.randint(words, (ROWS, STEPS + 1), generator=generator)

    def compute_loss(self) -> Tensor:
        return negative_log_likelihood(self._model, self._words_BT[:, :-1], self._words_BT[:, 1:])[0]

    def time(self) -> float:
        """Seconds of a forward and a backward pass."""
        self._model.zero_grad()
        started = time.perf_counter()
        self.compute_loss().backward()  # type: ignore[no-untyped-call]
        return time.perf_counter() - started

    def measure_saved_bytes(self) -> int:
        """Bytes of the distinct tensors that autograd keeps, without the parameters."""
        own = {parameter.untyped_storage().data_ptr() for parameter in self._model.parameters()}
        sizes: dict[int, int] = {}
        kept: list[Any] = []  # freed storages would give their address to the next one

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                sizes[storage.data_ptr()] = storage.nbytes()
                kept.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            self.compute_loss()
        return sum(sizes.values())


def check_new_families(samples: Iterable[TrialConfig]) -> None:
    """Build and run one model of each source of users and packages among the sampled trials.

    Raises PluginError that names the file and the problem.
    """
    found = {
        source.digest: (source, sample.model)
        for sample in samples
        for source in list_sources(sample.model.model_dump(mode="json"))
    }
    for source, config in found.values():
        try:
            problem = _find_problem(config)
        except MemtuneError:
            raise
        except (Exception, SystemExit) as error:
            problem = describe_error(error)
        if problem is not None:
            raise PluginError(
                f"{source}: a model of {config.family} does not work: {problem}; memtune model check shows "
                "more"
            )


def find_formula_problem(config: TrialConfig, vocabulary_size: int) -> str | None:
    """Why the sizes or the description of a configuration cannot be computed; None where they can be.

    Only plug-ins are checked, whose formulas may fail for some of their configurations: the driver uses them
    for each trial, and its tables for each trial that has ended.
    """
    if not list_sources(config.model_dump(mode="json")):
        return None
    try:
        sizes: dict[str, object] = {
            "parameter_count": config.parameter_count(vocabulary_size),
            "multiply_adds": config.multiply_adds(vocabulary_size),
            "state_size": config.model.state_size(),
        }
        described: dict[str, object] = {**config.model.describe(), **config.model.describe_output()}
    except MemtuneError:
        raise
    except (Exception, SystemExit) as error:
        return f"its formulas fail: {describe_error(error)}"
    for name, size in sizes.items():
        if not isinstance(size, Integral) or size < 0:
            return f"its {name} is {size!r}, which is not a whole number of at least 0"
    wrong = [name for name, value in described.items() if not isinstance(value, str | Real)]
    return f"it describes {', '.join(wrong)} by other values than texts and numbers" if wrong else None


def _find_problem(config: LanguageModelConfig) -> str | None:
    """What is wrong with a small model of the configuration, or None."""
    rows, steps, words = READ_SHAPE
    model, formula = build_model(config, words, seed=0), config.parameter_count(words)
    built = sum(parameter.numel() for parameter in model.parameters())
    if built != formula:
        return f"it has {format_count(built, 'parameter')}, and parameter_count gives {formula:,}"
    if not isinstance(model, NeuralLanguageModel):
        return None
    words_BT = torch.randint(words, (rows, steps), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole_BTV, _ = logits(model.eval(), words_BT)
        first_BTV, state = logits(model, words_BT[:, :READ_CUT])
        second_BTV, _ = logits(model, words_BT[:, READ_CUT:], state)
    if whole_BTV.shape != READ_SHAPE:
        return f"its logits have shape {tuple(whole_BTV.shape)} instead of {READ_SHAPE}"
    if whole_BTV.isnan().any():
        return "its logits are not numbers"
    is_equal = partial(torch.allclose, rtol=0, atol=READ_TOLERANCE * float(whole_BTV.abs().max()))
    if not config.reads_ahead and not is_equal(first_BTV, whole_BTV[:, :READ_CUT]):
        return "its predictions depend on later words, which it may not see"
    if not config.reads_ahead and not is_equal(second_BTV, whole_BTV[:, READ_CUT:]):
        return "a text read in two pieces has other predictions than in one: the state lacks what they need"
    if config.multiply_adds(words) < 1 or config.state_size() < 0:
        return "multiply_adds must be at least 1, and state_size must not be negative"
    return None
