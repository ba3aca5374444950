"""Renders results for people and for programs; `output.py` writes each in the format asked for."""
