"""Parts of mlcl in other frameworks; each module needs the framework it is named after, as an extra."""
