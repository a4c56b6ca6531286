"""Share sessions with brokers: ShareFetch and ShareAcknowledge requests and their results."""
