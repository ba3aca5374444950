"""The SDK: the clients that `holdfast` exports, and what the other doors share with them."""
