"""A Git repository as a source: fetched without a work tree, read as files, written on branches.

Start at `repository`, the port. Below it, `mirror` keeps a local copy that repairs itself, `bare`
is the repository on disk and what we commit to it, `export` writes the files of one commit,
`command` runs Git and reads its errors, `environment` is what Git gets to see of this machine,
and `address` checks what users write: addresses and revisions.
"""
