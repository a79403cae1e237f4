"""The table of all oracles: the cases and the examples of every family of networks and every output layer."""

from importlib import import_module

from memtune.models import NeuralLanguageModelConfig, list_families
from tests.oracles import output_layer_cases
from tests.oracles.cases import OracleCase

__all__ = ["FAMILIES", "list_cases", "list_examples"]

FAMILIES = list_families(trained_by_gradient=True)


def list_cases() -> dict[str, OracleCase]:
    """Every case by "family: its name", families by name, output layers last."""
    cases = {
        f"{family}: {name}": case
        for family in FAMILIES
        for name, case in import_module(f"tests.oracles.{family}").CASES.items()
    }
    return cases | output_layer_cases.CASES


def list_examples() -> list[NeuralLanguageModelConfig]:
    """The examples of every family and of every output layer."""
    examples = [
        example for family in FAMILIES for example in import_module(f"tests.oracles.{family}").EXAMPLES
    ]
    return [*examples, *output_layer_cases.EXAMPLES]
