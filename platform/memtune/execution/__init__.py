"""Where it runs: studies, trials, resume. The only home of Ray, imported on first use."""
