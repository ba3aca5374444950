"""The `holdfast` command. Start at `main.py`: a table of verbs, each loaded when it is used.

`group.py` bends click to our rules, `session.py` is one run of the command, `options.py` has what
several verbs take, `screen.py` is where they write, `exits.py` how they end, and `connect.py` opens
what the settings point to. A verb is a module of its name; those that run until they are stopped
are in `daemon.py`, those that decide about drift in `review.py`, those for a store file in
`store.py`, and what `drift` and `watch` do about applications is in `applications.py`. `inputs.py`
reads specs from files, `workload_wait.py` and `application_wait.py` wait, `import_spec.py` is
`import`, `kubectl.py` is the same program as a plugin, and `settings.py` says where each setting
comes from. `views` renders results for people and for programs.
"""
