"""Renders results for people and for programs; `output.py` writes each in the format asked for.

`workloads`, `drifts` and `plan` are about workloads; `applications`, `application_drifts` and
`application_diff` about applications; `text` makes what strangers wrote safe and fitting.
"""
