"""The membership of a share group."""
