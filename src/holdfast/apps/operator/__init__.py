"""The Kubernetes operator: follows InferenceServices and their children, feeds the reconciler."""
