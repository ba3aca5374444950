"""Files of one commit become objects: plain YAML, Kustomize, and SOPS for what is encrypted."""
