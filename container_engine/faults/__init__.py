"""The errors of a launch, as data: a code, a remedy and a page for each."""
