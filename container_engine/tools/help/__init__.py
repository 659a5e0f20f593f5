"""The pages of `ce help`, and a search in them."""
