"""What the stores behind a network have in common: a home thread for the driver, deadlines, repeats, hints, options in the URL."""
