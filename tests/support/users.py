"""System users that tests run processes as."""

NOBODY = "nobody"  # words: keep
WWW_DATA = "www-data"
