"""One Run: from its preparation to the committed Record."""
