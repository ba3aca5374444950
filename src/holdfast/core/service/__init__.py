"""The custom resource `InferenceService`: its values, its checks, and the objects it stands for."""
