"""HTTP in tests: a strict client, TLS, load, an upstream."""
