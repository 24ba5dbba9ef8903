"""What ``docs/generate.py`` renders: tables and pictures that follow from the code."""
