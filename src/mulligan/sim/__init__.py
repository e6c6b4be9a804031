"""The real worker under virtual time."""
