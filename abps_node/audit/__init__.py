"""What left this center, and what it decided on: two records that can be checked by others."""
