"""One folder per outside thing, each implementing ports."""
