"""The verbs for ACLs, users, certificates and quotas."""
