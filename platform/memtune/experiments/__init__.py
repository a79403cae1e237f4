"""What trains outside a study: single trials, ask and tell, judge, probes, tables of papers."""
