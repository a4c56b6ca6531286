"""Examples: applications and pipelines that use sharegroup as a user of the package does."""
