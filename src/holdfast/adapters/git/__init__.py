"""A Git repository as a source: fetched without a work tree, read as files, written on branches."""
