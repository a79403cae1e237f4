"""A training in one line that is replaced in place, or in lines in a pipe."""

from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from memtune.reports.live.live_view import LiveView

if TYPE_CHECKING:
    from memtune.training import Progress, Report


class LineDisplay(LiveView):
    """One line that is replaced on a terminal and in a notebook. A pipe gets `add_line` alone."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._line = Text()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._line

    def replace(self, line: str) -> None:
        """Show a line in place of the one before."""
        self._line = Text(line)
        self.refresh()


def format_progress(now: "Progress", unit: str) -> str:
    """The state of a training between two reports in a line."""
    speed = f"{now.tokens_per_second:,.0f} {unit}/s"
    return f"{now.tokens:,} {unit}, {speed}, loss {now.loss:.3f}, {now.seconds_left:,.0f} s left"


def format_report(report: "Report", unit: str) -> str:
    """One line for a report: perplexities, or losses and accuracy for a classifier."""
    words = unit == "tokens"
    figures = [("train", report.train_perplexity if words else report.train_loss)]
    figures += [("validation", report.valid_perplexity if words else report.valid_loss)]
    name = "perplexity" if words else "loss"
    parts = [f"{split} {name} {value:.3f}" for split, value in figures if value is not None]
    parts += ["diverged"] if report.valid_loss is None else []
    parts += [] if report.valid_accuracy is None else [f"accuracy {100 * report.valid_accuracy:.2f} %"]
    parts.append(f"{report.tokens_per_second:,.0f} {unit}/s")
    return f"epoch {report.epoch:.2f}, {report.tokens:,} {unit}: {', '.join(parts)}"
