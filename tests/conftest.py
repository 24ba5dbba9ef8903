"""What all tests share: property tests draw the same examples in every run, without deadlines."""

from hypothesis import settings

settings.register_profile("abps", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("abps")
