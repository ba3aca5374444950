"""Where notices go out, each implementing the `NotificationChannel` port.

`channels` are the log, Slack and any webhook; `delivery` posts to an address that somebody else
chose, and cannot be led astray by it.
"""
