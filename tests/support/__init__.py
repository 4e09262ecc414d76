"""The parts that end-to-end tests are made of: a server, an HTTP client, an upstream, processes, load, folders."""
