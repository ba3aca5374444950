"""Joins the GitOps values to repositories, clusters, forges and reviewers."""
