"""What an installation is made of, as plain Kubernetes objects. Start at `objects.py`.

`settings.py` has the choices, `deployments.py` what runs, `rbac.py` what it may do, and
`monitoring.py` reads alert rules and the dashboard from the files in `data/`.
"""
