"""The command `ce`. Only this package prints and exits."""
