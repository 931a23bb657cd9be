"""Code that only operators call, and what instances write for them: no job needs it to run."""
