"""Token streams for language-model pre-training that can be killed at any step and go on exactly."""
