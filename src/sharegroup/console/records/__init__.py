"""Records as the console reads and shows them: searches with a budget, bounded previews."""
