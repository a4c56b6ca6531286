"""What several verbs share: options, connections, properties, output."""
