"""The command `ce`, one module per verb. Only this package prints and exits."""
