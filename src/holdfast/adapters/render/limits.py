"""What one rendering may take. Reached limits are refusals that say so, never cut answers."""

from __future__ import annotations

MIB = 2**20

MAX_FILES = 10_000
"""Files that one path may read."""
MAX_FILE_BYTES = 4 * MIB
MAX_BYTES = 64 * MIB
"""All files of one path together."""
MAX_OBJECTS = 20_000
MAX_DEPTH = 32
"""Directories within directories, and layers on layers."""
MAX_LAYERS = 500
"""Kustomizations that take part in one path."""
MAX_OUTPUT = 64 * MIB
"""What a renderer may print."""
MAX_COMPLAINT = 64 * 2**10
"""What is kept of a program's error output."""
MAX_PROBLEMS = 20
"""Problems told at once."""

RENDER_SECONDS = 60.0
DECRYPT_SECONDS = 20.0
MEMORY = 2048 * MIB
"""Address space of a child; Go reserves far more than it uses."""
OPEN_FILES = 512

CACHED_RENDERS = 500
CACHED_TEXT = 32 * MIB
"""Of the files that were read last."""
CACHED_BYTES = 128 * MIB
"""Written as JSON; in memory it is some five times that."""
CONCURRENT_RENDERS = 2
