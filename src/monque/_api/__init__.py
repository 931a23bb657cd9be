"""The objects that users hold: `Monque`, its management side, and how jobs are stored through it."""
