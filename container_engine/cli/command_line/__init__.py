"""What a command line may say: verbs, options that several verbs have, examples."""
