"""The GitOps controller as values and pure functions: what is declared, what stands, what to do."""
