"""Channels that notices go out on, each implementing the `NotificationChannel` port."""
