"""Where it runs: studies, trials, resume. The only home of Ray, which is imported by `search` on first use."""
