"""A task's programs: sketches and the decisions left open in each."""
