"""A shop that never sleeps, for the dashboard: `python -m examples.shop`, or `monque demo --web`."""
