"""A small certificate authority that speaks ACME (RFC 8555), for tests."""
