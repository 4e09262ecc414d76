"""The line that ends a benchmark: whether its bar is met."""


def word(is_met):
    return "met" if is_met else "MISSED"


def print_verdict(is_met, text):
    """Prints the line, and returns `is_met`."""
    print(f"{word(is_met)}: {text}", flush=True)
    return is_met
