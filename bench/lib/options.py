"""Options that several benchmarks have, and parsers of their values."""

import argparse


def add_measurement(parser, *, rounds, seconds, connections=None):
    """How often, for how long, and with how many connections a benchmark measures."""
    parser.add_argument("--rounds", type=int, default=rounds, help=f"default {rounds}")
    parser.add_argument("--seconds", type=int, default=seconds, help=f"of each measurement; default {seconds}")
    if connections:
        parser.add_argument("--connections", type=int, default=connections, help=f"default {connections}")


def list_of(known):
    """A parser of a comma-separated list of known words."""
    def parse(text):
        words = [word.strip() for word in text.split(",") if word.strip()]
        for word in words:
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word!r} is unknown; choose from {', '.join(known)}")
        return words
    return parse


def numbers(text):
    return [int(word) for word in text.split(",")]
