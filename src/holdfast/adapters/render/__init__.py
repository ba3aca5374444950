"""Files of one commit become objects: plain YAML, Kustomize, and SOPS for what is encrypted.

Start at `renderer`, the port. `files` is the only way to a file, `manifests` reads plain YAML,
`layers` and `kustomization` read and check what Kustomize will see, `kustomize` runs it on a copy
and `origins` finds the file that set each field; `objects` checks what came out. `program` and
`sandbox` bound every program, `sops` decrypts. A new renderer is a module beside `kustomize`, a
branch in `renderer` and a member of `Renderer`.
"""
