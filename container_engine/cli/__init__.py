"""The command `ce`: one module per verb. The only place that prints and exits."""
