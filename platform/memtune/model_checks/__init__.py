"""The contract of every family of networks, as functions: the test suite and `memtune model check` call them.

It imports neither pytest nor the command line, so that a package with a family of its own can check it too.
"""

from memtune.model_checks.check_run import check_family, find_family
from memtune.model_checks.family_catalogue import (
    describe_family,
    list_entries,
    write_built_in_family,
    write_new_family,
)
from memtune.model_checks.family_contract import CHECKS
from memtune.model_checks.oracles import load_oracle
