"""A shop that never sleeps, for the dashboard: `python -m monque.shop`, or `monque demo --web`."""
