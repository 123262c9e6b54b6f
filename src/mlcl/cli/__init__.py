"""The command line: a verb is a function whose signature has the options of the command (`main` finds them)."""
