"""Entry points: each turns its input into Desired and hands it on."""
