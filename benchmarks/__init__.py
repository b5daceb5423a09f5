"""What lazyparam costs, as ratios against its peers in one run: ``python -m benchmarks --help``.

Every measured case runs in a process of its own, the cases of a comparison take turns, and every
result is checked against the file. Nothing here asserts a time.
"""
