"""Manifests as people write them, comments and all, for the end-to-end tests of GitOps."""

from __future__ import annotations

SETTINGS = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
data:
  # Agreed with the search team.
  mode: fast
  limit: "10"  # per second
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  replicas: {replicas}
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
      containers:
      - name: server
        image: {image}  # the team's own build
        args:
        - --port=8000
        - --max-batch=8
        env:
        - name: LEVEL
          value: info  # debug floods the disk
        - name: TZ
          value: UTC
        resources:
          requests: {{cpu: 10m, memory: 16Mi}}
          limits: {{memory: 64Mi}}
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  selector: {{app: {name}}}
  ports:
  - {{name: http, port: 80}}
"""
SECRET = """\
apiVersion: v1
kind: Secret
metadata:
  name: {name}
stringData:
  password: {password}
  user: shop
"""


def settings(name: str = "settings") -> str:
    return SETTINGS.format(name=name)


def deployment(name: str, *, image: str = "registry.example/web:v1", replicas: int = 1) -> str:
    return DEPLOYMENT.format(name=name, image=image, replicas=replicas)


def service(name: str) -> str:
    return SERVICE.format(name=name)


def secret(name: str, password: str) -> str:
    return SECRET.format(name=name, password=password)
