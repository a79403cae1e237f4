"""Runs of trials and studies: what is logged, the queue that delivers it, the leaderboard."""
