"""Plain values that users pass and get: errors, jobs, options, settings, events, views."""
