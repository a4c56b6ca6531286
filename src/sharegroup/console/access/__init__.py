"""Who may see and change what: roles, masks, tokens, sessions, limits; decisions without HTTP."""
