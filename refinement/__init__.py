"""The refinement checker: every recorded step of the engine is a sequence of actions of the specification."""
