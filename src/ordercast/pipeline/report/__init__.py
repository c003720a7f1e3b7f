"""One HTML file about one run or several: the verdict, what was measured as figures, and the order itself."""
