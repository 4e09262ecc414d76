"""Parts of end-to-end tests: a server, an HTTP client, an upstream, processes, load, folders."""
