"""`memtune judge`: whether one configuration is better than another."""

from typing import Annotated

import typer

from memtune.cli.shell_completion import complete_trial_file
from memtune.cli.terminal import AsJson, Device, TrustCode, err, out
from memtune.gc_pause import pause_gc

EXIT_CODES = {"better": 0, "undecided": 4}
NOT_BETTER = 3
Judged = Annotated[
    str,
    typer.Argument(
        help="A trial as a TOML file, STUDY#7, or models:/NAME/VERSION.", autocompletion=complete_trial_file
    ),
]


def judge(
    baseline: Judged,
    candidate: Judged,
    indifference: Annotated[
        float, typer.Option(help="Differences within it are equal; 0.005 is 0.5 % of perplexity.")
    ] = 0.005,
    max_seeds: Annotated[int, typer.Option(help="Seeds of each, at most 30.")] = 30,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    json: AsJson = False,
) -> None:
    """Is the second configuration better than the first? Train both under equal seeds until that is decided.

    Exit code: 0 better, 3 not better (worse, equal, or the same configuration), 4 undecided.

    Example: memtune judge jobs/trials/grammar_lstm.toml my_network.toml
    """
    with pause_gc():
        # Imported here: torch loads for seconds, which --help need not wait for.
        from memtune.reports.live.watched_calls import judge as judge_watched

    judged = judge_watched(
        baseline,
        candidate,
        indifference=indifference,
        max_seeds=max_seeds,
        device=device,
        trust_code=trust_code,
        console=err if json else out,
    )
    if json:
        out.print_json(data=judged.model_dump(mode="json"))
    else:
        out.print(judged.text, highlight=False, soft_wrap=True)
        cost = f"{judged.tokens:,} tokens, {judged.cpu_hours:.3g} core h"
        out.print(f"trained: {cost}" if judged.decision else "nothing was trained", highlight=False)
    raise typer.Exit(EXIT_CODES.get(judged.outcome, NOT_BETTER))
