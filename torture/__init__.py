"""Faults, links and a second writer at every place of every command: what is left loads or says what to do."""
