"""Looking at a whole federation, whether it runs, has finished or is half dead."""
