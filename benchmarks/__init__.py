"""How fast the provider is, side by side with what does the same; `python -m benchmarks --help`."""
