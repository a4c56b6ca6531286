"""The demo: a year of real flights through two share groups, with crashes."""
