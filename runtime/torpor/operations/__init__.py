"""What operators look at: timelines and listings, read from stores and statistics only."""
