"""The command line `abps`: one module per command or group of commands."""
