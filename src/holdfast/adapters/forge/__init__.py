"""Pull requests on GitHub, GitLab, Gitea and Forgejo, as the `Forge` port.

`choose` finds the one that a repository lives on. `pulls` is what all of them do the same way;
a module each has what differs.
"""
