"""One study as it is read: trials, ranking, front, leaderboard, verdict and report, over one view of it."""
