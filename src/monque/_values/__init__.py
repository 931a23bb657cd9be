"""What users pass and get, as plain values: errors, jobs, options, settings, events, views."""
