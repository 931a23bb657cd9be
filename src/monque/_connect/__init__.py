"""From what users hold to one async database, with its sessions and time limits."""
