"""Studies: cells to run as data, results to load, summaries to write."""
