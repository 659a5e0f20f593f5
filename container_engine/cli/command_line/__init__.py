"""The words that a command line may have: verbs, options that several verbs share."""
