"""Every port in plain dictionaries, for tests and demos."""
