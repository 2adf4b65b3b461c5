"""One module per label format; each turns files into packed ``Records``."""
