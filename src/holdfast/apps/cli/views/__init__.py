"""Renders results for people and for programs."""
