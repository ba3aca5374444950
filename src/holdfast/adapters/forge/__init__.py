"""Pull requests on GitHub, GitLab, Gitea and Forgejo, as the `Forge` port.

Start at `providers`, which finds the forge of a repository. `pull_requests` is what all of them do
the same way, `github`, `gitlab` and `gitea` have what differs, and `transport` sends the requests
and turns responses into errors. A new forge is a dialect in a module of its own, a row in
`providers` and a member of `ForgeProvider`.
"""
