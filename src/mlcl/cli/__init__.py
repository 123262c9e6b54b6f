"""The command line: one file per verb, each a few lines that call one function of the library (`main` finds them)."""
