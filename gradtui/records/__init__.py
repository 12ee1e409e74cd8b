"""What is kept of a run: recordings and what reads them, exports, comparisons and reports."""
