"""`memtune ...`: one module per command group, one thin function per command.

Each command calls a function of the package. It imports inside its functions what loads slowly: torch, Ray,
MLflow, Optuna, Altair and pydantic take 0.3 s to seconds each, and help, completion and wrong usage do not
wait for them.

Exit codes: 0 success, 1 an error that the message explains, or an interrupt, 2 wrong usage; 3 and 4 are
answers of `judge`.
"""

from memtune.stop_signals import end_on_stop_signals


def main() -> None:
    """Run `memtune ...` in a process of its own, which a stop signal ends with a line at any time."""
    end_on_stop_signals()
    # Imported here: it takes 0.3 s, in which a signal would print a traceback without the handlers.
    from memtune.cli.command_line import run_command

    run_command()
