"""End-to-end tests with real applications: see README.md."""
