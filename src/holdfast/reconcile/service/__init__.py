"""Keeps one InferenceService and its children as declared."""
