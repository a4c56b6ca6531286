"""Groups with the "consumer" protocol of KIP-848."""
