"""TLS of the listeners: contexts, certificates, handshakes and the transport of a connection."""
