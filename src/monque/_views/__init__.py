"""Views of jobs, schedules, instances and numbers: one description for `--json` and for HTTP."""
