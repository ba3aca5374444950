"""The SDK: the clients that `holdfast` exports, and what the other apps share with them."""
