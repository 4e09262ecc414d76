"""Parts of the tests of packaged applications: a browser, a database, files."""
