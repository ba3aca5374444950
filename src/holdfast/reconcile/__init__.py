"""Joins the pure core to the world, through ports."""
