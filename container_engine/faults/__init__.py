"""What can go wrong, as data: a code, a remedy and a page for each error of a launch."""
