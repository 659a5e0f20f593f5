"""What hooks are known and what belongs to them, as data."""
