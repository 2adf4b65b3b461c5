"""One module per transform: ``sample_*`` draws a small frozen record, everything else is pure."""
