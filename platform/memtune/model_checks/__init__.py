"""The contract of every family of networks, as functions: the test suite and `memtune model check` call them.

It imports neither pytest nor the command line, so that a package with a family of its own can check it too.
"""

from memtune.model_checks.check_run import CheckResult, check_family, find_family
from memtune.model_checks.family_catalogue import describe_family, list_entries
from memtune.model_checks.family_contract import CHECKS, Check
from memtune.model_checks.new_family import write_built_in_family, write_new_family
from memtune.model_checks.oracle_agreement import Oracle, assert_agreement
from memtune.model_checks.oracle_cases import EXAMPLE_SIZE, OracleCase
from memtune.model_checks.oracle_files import OracleFile, load_oracle
