"""Who a peer is, what it may do, and how much: principals, logins, ACLs, audit, quotas."""
